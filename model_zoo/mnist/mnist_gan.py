"""A GAN that draws digits: two networks, each with its own optimizer, in a ``train_step``.

In the style of Keras's own examples. The model's outputs are drawn digits, as many as it is given:
``edl predict`` writes them. ``distance``, measured on ``--validation-data``, is 0 if the pixels of
drawn and of real digits have the same means and standard deviations.
"""

import keras
import tensorflow as tf
from keras import layers, ops

LATENT_DIM = 32
# Without it, the distance swings, and about one training in ten is still far off after 8 epochs.
GRADIENT_PENALTY = 0.5


class Distance(keras.metrics.Metric):
    """Between the pixels of drawn and of real images, each pixel taken by itself.

    It is 1 for black images, and less the nearer means and standard deviations are to each other.
    """

    def __init__(self, name="distance"):
        super().__init__(name=name)
        shape = (2, 28, 28, 1)
        self.count = self.add_variable((), "zeros", name="count")
        self.sums = self.add_variable(shape, "zeros", name="sums")
        self.squares = self.add_variable(shape, "zeros", name="squares")

    def update_state(self, drawn, real):
        both = ops.stack([drawn, real])
        self.count.assign_add(ops.cast(ops.shape(real)[0], "float32"))
        self.sums.assign_add(ops.sum(both, axis=1))
        self.squares.assign_add(ops.sum(both**2, axis=1))

    def result(self):
        count = ops.maximum(self.count, 1.0)
        means = self.sums / count
        deviations = ops.sqrt(ops.maximum(self.squares / count - means**2, 0.0))
        apart = [ops.sum((each[0] - each[1]) ** 2) for each in (means, deviations)]
        size = [ops.sum(each[1] ** 2) for each in (means, deviations)]
        return sum(apart) / ops.maximum(sum(size), 1e-6)


class GAN(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__(name="gan")
        self.discriminator = discriminator
        self.generator = generator
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn
        self.distance = Distance()

    @property
    def metrics(self):
        return [self.distance]

    def call(self, real):
        """Draw as many digits, the same ones for the same real ones."""

        def noise(image):
            seed = tf.cast(tf.reduce_sum(image) * 1000, tf.int32)
            return tf.random.stateless_normal([LATENT_DIM], [seed, 0])

        return self.generator(tf.map_fn(noise, real))

    def train_step(self, real):
        size = ops.shape(real)[0]
        noise = keras.random.normal((size, LATENT_DIM), seed=self.seed_generator)
        combined = ops.concatenate([self.generator(noise, training=True), real])
        labels = ops.concatenate([ops.ones((size, 1)), ops.zeros((size, 1))])
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(combined, training=True))
            d_loss += GRADIENT_PENALTY * self.gradient_penalty(real)
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)

        noise = keras.random.normal((size, LATENT_DIM), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            drawn = self.generator(noise, training=True)
            g_loss = self.loss_fn(ops.zeros((size, 1)), self.discriminator(drawn))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)
        return {"d_loss": d_loss, "g_loss": g_loss}

    def gradient_penalty(self, real):
        """The mean squared gradient of the discriminator's verdict on real images.

        A discriminator that is flat there cannot run away from the generator.
        """
        with tf.GradientTape() as tape:
            tape.watch(real)
            verdict = self.discriminator(real)
        return ops.mean(ops.sum(tape.gradient(verdict, real) ** 2, axis=(1, 2, 3)))

    def test_step(self, real):
        self.distance.update_state(self(real), real)
        return {"distance": self.distance.result()}


discriminator = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Conv2D(16, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(32, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(1),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input((LATENT_DIM,)),
        layers.Dense(7 * 7 * 32),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Reshape((7, 7, 32)),
        layers.Conv2DTranspose(32, 4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid"),
    ],
    name="generator",
)
model = GAN(discriminator, generator)
model.compile(
    d_optimizer=keras.optimizers.Adam(0.0005, beta_1=0.5),
    g_optimizer=keras.optimizers.Adam(0.001, beta_1=0.5),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)


def dataset_fn(dataset, mode):
    def parse(record):
        feature = {"image": tf.io.FixedLenFeature([28, 28, 1], tf.float32)}
        return tf.io.parse_single_example(record, feature)["image"] / 255

    return dataset.map(parse).shuffle(1024)
