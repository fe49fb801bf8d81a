"""CIFAR-10 (small colour images of ten classes), with the functional API.

Records: tf.Example with ``image`` (32×32×3 floats from 0 to 255) and ``label`` (int64).
"""

import tensorflow as tf

from .data import dataset_fn, eval_metrics_fn, loss, optimizer


def _block(x, filters):
    for _ in range(2):
        x = tf.keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        # Keras's default of 0.99 needs hundreds of updates before evaluation sees trained statistics.
        x = tf.keras.layers.BatchNormalization(momentum=0.9)(x)
        x = tf.keras.layers.Activation("relu")(x)
    x = tf.keras.layers.MaxPooling2D()(x)
    return tf.keras.layers.Dropout(0.2)(x)


inputs = tf.keras.Input(shape=(32, 32, 3), name="image")
x = _block(inputs, 32)
x = _block(x, 64)
x = _block(x, 128)
x = tf.keras.layers.GlobalAveragePooling2D()(x)
outputs = tf.keras.layers.Dense(10)(x)

model = tf.keras.Model(inputs=inputs, outputs=outputs, name="cifar10_model")
