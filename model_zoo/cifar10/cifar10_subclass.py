"""CIFAR-10 (small colour images of ten classes), with a subclassed model and a custom layer.

Records: tf.Example with ``image`` (32×32×3 floats from 0 to 255) and ``label`` (int64).
"""

import tensorflow as tf

from .data import dataset_fn, eval_metrics_fn, loss, optimizer


class Block(tf.keras.layers.Layer):
    """Two convolutions, then pooling to half the size."""

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self._convolutions = [
            tf.keras.layers.Conv2D(filters, 3, padding="same", use_bias=False) for _ in range(2)
        ]
        # Keras's default of 0.99 needs hundreds of updates before evaluation sees trained statistics.
        self._norms = [tf.keras.layers.BatchNormalization(momentum=0.9) for _ in range(2)]
        self._pool = tf.keras.layers.MaxPooling2D()

    def build(self, input_shape):
        for convolution, norm in zip(self._convolutions, self._norms, strict=True):
            convolution.build(input_shape)
            input_shape = convolution.compute_output_shape(input_shape)
            norm.build(input_shape)

    def call(self, x, training=False):
        for convolution, norm in zip(self._convolutions, self._norms, strict=True):
            x = tf.nn.relu(norm(convolution(x), training=training))
        return self._pool(x)


class Cifar10Model(tf.keras.Model):
    def __init__(self, widths=(32, 64, 128), dropout=0.2):
        super().__init__(name="cifar10_model")
        self._blocks = [Block(width) for width in widths]
        self._pool = tf.keras.layers.GlobalAveragePooling2D()
        self._dropout = tf.keras.layers.Dropout(dropout)
        self._dense = tf.keras.layers.Dense(10)

    def call(self, inputs, training=False):
        x = inputs["image"]
        for block in self._blocks:
            x = block(x, training=training)
        x = self._dropout(self._pool(x), training=training)
        return self._dense(x)
