"""A layer that turns the columns of a table into one tensor of numbers."""

import tensorflow as tf
from column_functions import (
    NUMBERS,
    category_ids,
    check_term,
    columns_in,
    embedding_of,
    indicator,
    indicator_size,
)
from table_schema import NULL_TEXT, columns_of

from elasticdl.layers import Embedding

# Texts of few kinds become one input for each of several hash buckets per kind, so that two kinds
# seldom share one. Texts of more kinds get rows of an embedding table, by a hash of 62 bits.
_FEW = 100
_BUCKETS_PER_TEXT = 8
_ROW = 8
_IDS = 1 << 62
# Nearly the identity for most numbers; numbers far from the mean, which few rows have, come closer.
_BOUND = 3.0


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
        columns: names of columns, and functions of them (``column_functions``); by default all
            columns as they are. They need a schema.
        joined: the output is one tensor; else a list with a tensor for each column or function.
        bounded: numbers with a schema lie within ``_BOUND`` deviations of the mean.

    Raises:
        ValueError: the columns do not fit the schema, or each other.
    """

    def __init__(
        self,
        word_buckets=1024,
        schema=None,
        label=None,
        columns=None,
        joined=True,
        bounded=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._bounded = bounded
        self.word_buckets = word_buckets
        self._joined = joined
        self._known = {each.name: each for each in columns_of(schema, label)} if schema else {}
        if columns and not schema:
            raise ValueError("functions of columns need the schema of the data")
        self._terms = tuple(columns or self._known)
        for term in self._terms:
            check_term(term, self._known)
        self._tables = {
            str(number): table
            for number, term in enumerate(self._terms)
            if (table := self._table(term, number)) is not None
        }

    @property
    def parts(self):
        """Number of columns and functions.

        Raises:
            ValueError: it is not known without a schema.
        """
        if not self._terms:
            raise ValueError(
                "this model needs the parameter schema: the content of the schema.json that "
                "edl data convert writes next to the records"
            )
        return len(self._terms)

    @property
    def width(self):
        """Number of inputs that all columns and functions make together.

        Raises:
            ValueError: it is not known without a schema.
        """
        return sum(self._width(number) for number in range(self.parts))

    @property
    def has_tables(self):
        """Whether any column has rows of an embedding table."""
        return bool(self._tables)

    @property
    def shares(self):
        """How much of each term is due to each column of the schema: a row for each term.

        Raises:
            ValueError: it is not known without a schema.
        """
        if not self._known:
            raise ValueError("without a schema, it is not known what a column adds")
        rows = []
        for term in self._terms:
            used = columns_in(term)
            rows.append([used.count(name) / len(used) for name in self._known])
        return rows

    def _width(self, number):
        term = self._terms[number]
        wanted = embedding_of(term)
        if wanted is not None:
            return wanted[0]
        if not isinstance(term, str) and term[0] not in NUMBERS:
            return indicator_size(term[1] if term[0] == "INDICATOR" else term, self._known)
        known = self._known[term if isinstance(term, str) else term[1]]
        if not known.is_text:
            inputs = known.width
        elif str(number) in self._tables:
            inputs = known.width * _ROW
        else:
            inputs = _BUCKETS_PER_TEXT * max(known.vocabulary, 1)
        return inputs + bool(known.nulls)

    def _table(self, term, number):
        wanted = embedding_of(term)
        if wanted is not None:
            return Embedding(wanted[0], combiner=wanted[1], name=f"rows_{number}")
        if isinstance(term, str) and self._known[term].vocabulary > _FEW:
            return Embedding(_ROW, name=f"texts_{number}")
        return None

    def call(self, columns):
        if self._known:
            parts = [self._part(number, columns) for number in range(len(self._terms))]
        else:
            parts = [self._plain(columns[name]) for name in sorted(columns)]
        return tf.concat(parts, axis=1) if self._joined else parts

    def _part(self, number, columns):
        """Return the part of the inputs that one term makes: (n, inputs)."""
        term = self._terms[number]
        if isinstance(term, str):
            return tf.concat(self._parts(number, self._known[term], columns), axis=1)
        name, inner = term[0], term[1]
        if name in NUMBERS:
            return tf.concat(self._parts(number, self._known[inner], columns), axis=1)
        if name == "EMBEDDING":
            return self._tables[str(number)](category_ids(inner, columns, self._known))
        return indicator(inner if name == "INDICATOR" else term, columns, self._known)

    def _plain(self, column):
        if column.dtype == tf.string:
            column = _buckets(column, self.word_buckets)
        return tf.cast(column, tf.float32)

    def _parts(self, number, known, columns):
        column = columns[known.name]
        if not known.is_text:
            column = tf.cast(column, tf.float32)
            is_null = tf.math.is_nan(column)
            numbers = (column - known.mean) / known.deviation
            if self._bounded:
                numbers /= tf.sqrt(1 + tf.square(numbers / _BOUND))
            parts = [tf.where(is_null, tf.zeros_like(numbers), numbers)]
        else:
            is_null = tf.equal(column, NULL_TEXT)
            if str(number) in self._tables:
                rows = self._tables[str(number)](tf.strings.to_hash_bucket_fast(column, _IDS))
                parts = [tf.reshape(rows, (-1, known.width * _ROW))]
            else:
                parts = [_buckets(column, _BUCKETS_PER_TEXT * max(known.vocabulary, 1))]
        if known.nulls:
            parts.append(tf.cast(is_null[:, :1], tf.float32))
        return parts


def _buckets(texts, number):
    bucket = tf.strings.to_hash_bucket_fast(texts, number)
    return tf.reduce_max(tf.one_hot(bucket, number), axis=1)
