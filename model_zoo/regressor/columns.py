"""A layer that turns the columns of a table into one tensor of numbers."""

import tensorflow as tf


class Columns(tf.keras.layers.Layer):
    """Concatenates numbers and hashed words in the order of their column names.

    Each column has shape (batch, n).
    """

    def __init__(self, word_buckets=1024, **kwargs):
        super().__init__(**kwargs)
        self.word_buckets = word_buckets

    def call(self, columns):
        parts = []
        for name in sorted(columns):
            column = columns[name]
            if column.dtype == tf.string:
                bucket = tf.strings.to_hash_bucket_fast(column, self.word_buckets)
                column = tf.reduce_max(tf.one_hot(bucket, self.word_buckets), axis=1)
            parts.append(tf.cast(column, tf.float32))
        return tf.concat(parts, axis=1)
