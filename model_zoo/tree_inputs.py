"""A layer that turns the columns of a table into the numbers that trees split."""

import tensorflow as tf
from column_functions import NUMBERS, category_ids, check_term, columns_in, indicator_size
from table_schema import NULL_TEXT, columns_of

_FEW = 100
_MAX_CATEGORIES = 1000
_ORDERED_HASH = 1 << 24


class TreeInputs(tf.keras.layers.Layer):
    """Concatenates columns in the order of their names; what is missing is NaN.

    Numbers stay as they are. A text of up to 100 kinds is a category, which a tree splits from all
    others: one of ``_MAX_CATEGORIES`` hash buckets, which few texts share. Texts of more kinds are
    numbers: trees split the order of their hashes.

    Args:
        schema: the content of ``schema.json``.
        label: name of the label, which is no input; by default that of the schema.
        columns: names of columns, and functions of them (``column_functions``); by default all.

    Raises:
        ValueError: the columns do not fit the schema.
    """

    def __init__(self, schema, label=None, columns=None, **kwargs):
        super().__init__(**kwargs)
        self._known = {each.name: each for each in columns_of(schema, label)}
        self._terms = tuple(map(_plain, columns or self._known))
        for term in self._terms:
            check_term(term, self._known)
        sizes = [self._size(term) for term in self._terms]
        widths = [self._width(term) for term in self._terms]
        repeated = [
            each for each in zip(self._terms, sizes, widths, strict=True) for _ in range(each[2])
        ]
        self.is_category = [0 < size <= _MAX_CATEGORIES for _, size, _ in repeated]
        self.shares = [
            [used.count(name) / len(used) for name in self._known]
            for used in (columns_in(term) for term, _, _ in repeated)
        ]

    def _size(self, term):
        """Return how many categories a term has; 0 for numbers, and for what has an order."""
        if isinstance(term, str):
            known = self._known[term]
            few = known.is_text and known.vocabulary <= _FEW
            return _MAX_CATEGORIES if few else 0
        return 0 if term[0] in (*NUMBERS, "BUCKET") else indicator_size(term, self._known)

    def _width(self, term):
        if not isinstance(term, str) and term[0] == "CROSS":
            return 1
        return self._known[columns_in(term)[0]].width

    def call(self, columns):
        return tf.concat([self._part(term, columns) for term in self._terms], axis=1)

    def _part(self, term, columns):
        """Return the numbers of one term: (n, values)."""
        if not isinstance(term, str) and term[0] in NUMBERS:
            term = term[1]
        if not isinstance(term, str):
            ids = category_ids(term, columns, self._known)
            return _with_missing(ids, ids < 0)
        column = columns[term]
        if not self._known[term].is_text:
            return tf.cast(column, tf.float32)
        buckets = tf.strings.to_hash_bucket_fast(column, self._size(term) or _ORDERED_HASH)
        return _with_missing(buckets, tf.equal(column, NULL_TEXT))


def _plain(term):
    """Return the category that INDICATOR is of; trees need neither inputs nor rows for it.

    Raises:
        ValueError: it is EMBEDDING.
    """
    if isinstance(term, str) or term[0] not in ("INDICATOR", "EMBEDDING"):
        return term
    if term[0] == "EMBEDDING":
        raise ValueError("trees have no embedding tables: name the category without EMBEDDING")
    return _plain(term[1])


def _with_missing(ids, is_missing):
    numbers = tf.cast(ids, tf.float32)
    return tf.where(is_missing, tf.constant(float("nan")), numbers)
