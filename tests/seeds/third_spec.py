"""The documents' example as written; only the imports are added."""

import tensorflow as tf
from elasticdl import ElasticDLSpec
from elasticdl.python.common.constants import Mode

class MnistElasticDLSpec(ElasticDLSpec):

    def __init__(self, context=None, **kwargs):
        super(MnistElasticDLSpec, self).__init__(context=context)

    def create_optimizer(self, lr=0.1):
        return tf.train.GradientDescentOptimizer(learning_rate=lr)

    def create_loss(self, outputs=None, labels=None):
        labels = tf.reshape(labels, [-1])
        return tf.reduce_mean(
            input_tensor=tf.nn.sparse_softmax_cross_entropy_with_logits(
                logits=output, labels=labels
            )
        )

    def create_model(self):
        """returns the model instance
        We can use either functional API or Keras model subclass to create the model
        """
        inputs = tf.keras.Input(shape=(28, 28), name="image")
        x = tf.keras.layers.Reshape((28, 28, 1))(inputs)
        x = tf.keras.layers.Conv2D(32, kernel_size=(3, 3), activation="relu")(x)
        x = tf.keras.layers.Conv2D(64, kernel_size=(3, 3), activation="relu")(x)
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.MaxPooling2D(pool_size=(2, 2))(x)
        x = tf.keras.layers.Dropout(0.25)(x)
        x = tf.keras.layers.Flatten()(x)
        outputs = tf.keras.layers.Dense(10)(x)
        return tf.keras.Model(inputs=inputs, outputs=outputs, name="mnist_model")

    def create_metrics(self,
                mode=Mode.TRAINING,
                outputs=None,
                labels=None):

        if mode == Mode.EVALUATION:
            labels = tf.reshape(labels, [-1])
            return {
            "accuracy": tf.reduce_mean(
                    input_tensor=tf.cast(
                    tf.equal(
                        tf.argmax(outputs, 1, output_type=tf.dtypes.int32),
                        labels,),
                    tf.float32,)
                    )
            }
        return {}

    def create_dataset(self, dataset, mode):
        def _parse_data(record):
            if mode == Mode.PREDICTION:
                feature_description = {
                "image": tf.io.FixedLenFeature([28, 28], tf.float32)
            }
            else:
                feature_description = {
                    "image": tf.io.FixedLenFeature([28, 28], tf.float32),
                    "label": tf.io.FixedLenFeature([1], tf.int64),
                }
            r = tf.io.parse_single_example(record, feature_description)
            features = {
                "image": tf.math.divide(tf.cast(r["image"], tf.float32), 255.0)
            }
            if mode == Mode.PREDICTION:
                return features
            else:
                return features, tf.cast(r["label"], tf.int32)

        dataset = dataset.map(_parse_data)

        if mode != Mode.PREDICTION:
            dataset = dataset.shuffle(buffer_size=1024)
        return dataset

