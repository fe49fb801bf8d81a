"""A layer that turns the columns of a table into one tensor of numbers."""

import tensorflow as tf
from table_schema import NULL_TEXT, columns_of

from elasticdl.layers import Embedding

# Texts of few kinds become one input for each of several hash buckets per kind, so that two kinds
# seldom share one. Texts of more kinds get rows of an embedding table, by a hash of 62 bits.
_FEW = 100
_BUCKETS_PER_TEXT = 8
_ROW = 8
_IDS = 1 << 62


class Columns(tf.keras.layers.Layer):
    """Concatenates numbers and texts in the order of their column names.

    Each column has shape (batch, n).

    With a schema, a number loses the mean of its column and is divided by the deviation, NULL counts
    as the mean, and a column that had NULLs when the model was trained has one more input, which is
    1 for a NULL. A text that the training has not seen is one of a hash bucket, or of a new row.

    Args:
        word_buckets: number of hash buckets for the words of a column, without a schema.
        schema: the content of ``schema.json``.
        label: name of the label, which is no input; by default that of the schema.
    """

    def __init__(self, word_buckets=1024, schema=None, label=None, **kwargs):
        super().__init__(**kwargs)
        self.word_buckets = word_buckets
        self._known = tuple(columns_of(schema, label)) if schema else ()
        self._tables = {
            column.name: Embedding(_ROW, name=f"texts_{number}")
            for number, column in enumerate(self._known)
            if column.vocabulary > _FEW
        }

    def call(self, columns):
        if self._known:
            parts = [part for known in self._known for part in self._parts(known, columns)]
        else:
            parts = [self._plain(columns[name]) for name in sorted(columns)]
        return tf.concat(parts, axis=1)

    def _plain(self, column):
        if column.dtype == tf.string:
            column = _buckets(column, self.word_buckets)
        return tf.cast(column, tf.float32)

    def _parts(self, known, columns):
        column = columns[known.name]
        if not known.is_text:
            column = tf.cast(column, tf.float32)
            is_null = tf.math.is_nan(column)
            numbers = (column - known.mean) / known.deviation
            parts = [tf.where(is_null, tf.zeros_like(numbers), numbers)]
        else:
            is_null = tf.equal(column, NULL_TEXT)
            if known.name in self._tables:
                rows = self._tables[known.name](tf.strings.to_hash_bucket_fast(column, _IDS))
                parts = [tf.reshape(rows, (-1, known.width * _ROW))]
            else:
                parts = [_buckets(column, _BUCKETS_PER_TEXT * max(known.vocabulary, 1))]
        if known.nulls:
            parts.append(tf.cast(is_null[:, :1], tf.float32))
        return parts


def _buckets(texts, number):
    bucket = tf.strings.to_hash_bucket_fast(texts, number)
    return tf.reduce_max(tf.one_hot(bucket, number), axis=1)
