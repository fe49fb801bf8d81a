"""Models that only call their parts, as the GANs of Keras's own examples do."""

from __future__ import annotations

import numpy as np
import pytest
from model_files import REST, rows
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.optimizers import describe_optimizers
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues
from edl_worker.model_file.errors import ContractErrors
from elasticdl.python.common.constants import Mode

SOURCE = """
class GAN(tf.keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__(name="gan")
        self.discriminator, self.generator = discriminator, generator
        self.seed_generator = tf.keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_loss_metric = tf.keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = tf.keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, data):
        real = data[0]["x"]
        size = tf.shape(real)[0]
        noise = tf.keras.random.normal((size, 3), seed=self.seed_generator)
        combined = tf.concat([self.generator(noise), real], axis=0)
        labels = tf.concat([tf.ones((size, 1)), tf.zeros((size, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(combined))
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights))
        noise = tf.keras.random.normal((size, 3), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(noise))
            g_loss = self.loss_fn(tf.zeros((size, 1)), predictions)
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))
        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}

discriminator = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)], name="d")
generator = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)], name="g")
model = GAN(discriminator, generator)
model.compile(
    d_optimizer=tf.keras.optimizers.Adam(0.1),
    g_optimizer=tf.keras.optimizers.SGD(0.2),
    loss_fn=tf.keras.losses.BinaryCrossentropy(from_logits=True),
)
"""
TEST_STEP = """
    def test_step(self, data):
        self.d_loss_metric.update_state(self.discriminator(data[0]["x"]))
        return {"d_loss": self.d_loss_metric.result()}

discriminator"""


def build(zoo: ZooFolder, source: str = SOURCE, purpose: Mode = Mode.TRAINING) -> ModelFile:
    zoo.write("mine.py", source + REST.partition("def optimizer")[0])
    file = zoo.load("mine", purpose=purpose)
    file.build(batches(file, rows(8))[0])
    return file


def test_the_parts_are_trained_each_by_its_optimizer(zoo: ZooFolder) -> None:
    file = build(zoo)
    arena = Arena(file.model)
    assert sorted(v.path for v in file.model.trainable_variables) == [
        *("d/dense/bias", "d/dense/kernel", "g/dense_1/bias", "g/dense_1/kernel"),
    ]
    described = describe_optimizers(file, arena)
    (other,) = described["others"]
    assert (described["class_name"], other["class_name"]) == ("Adam", "SGD")
    step = GradientStep(file, WireValues(arena)).compute(batches(file, rows(8))[0])
    found = np.frombuffer(b"".join(bytes(part) for part in step.gradient), np.float32)
    assert np.count_nonzero(found) == found.size == 3 + 8
    assert step.loss > 0


def test_what_needs_a_call_is_refused(zoo: ZooFolder) -> None:
    file = build(zoo)
    with pytest.raises(EdlError, match="neither call nor test_step") as caught:
        file.check_evaluation()
    assert "--validation-data" in caught.value.remedy
    with pytest.raises(ContractErrors, match="the model gan has no call"):
        build(zoo, purpose=Mode.PREDICTION)


def test_its_own_step_is_enough_to_evaluate(zoo: ZooFolder) -> None:
    source = SOURCE.replace("\ndiscriminator", TEST_STEP, 1)
    build(zoo, source).check_evaluation()
    file = build(zoo, source, Mode.EVALUATION)
    metrics = file.new_metrics()
    metrics.add(batches(file, rows(8), mode=Mode.EVALUATION)[0])
    assert "d_loss" in metrics.result()


def test_a_part_without_known_input_is_refused(zoo: ZooFolder) -> None:
    with pytest.raises(ContractErrors, match="has no call, and its g no known input") as caught:
        build(zoo, SOURCE.replace("tf.keras.Input((3,)), ", ""))
    assert "keras.Input" in caught.value.errors[0].remedy
