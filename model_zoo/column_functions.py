"""Functions of columns, as the clause COLUMN of a statement of ``edl sql`` has them.

A term is the name of a column, or a list: the function, what it is of, and further arguments.

    ["NUMERIC", "age"]                          the number, as without a function
    ["BUCKET", "age", [18, 40, 65]]             one of four ranges
    ["CATEGORY_ID", "month", 13]                an integer from 0 to 12; others are none of them
    ["CATEGORY_HASH", "town", 1000]             a text or an integer, in one of 1000 buckets
    ["CROSS", ["town", "month"], 1000]          a combination, in one of 1000 buckets
    ["INDICATOR", category]                     an input for each category
    ["EMBEDDING", category, 8, "sum"]           a row of eight numbers for each category

A category is one of BUCKET, CATEGORY_ID, CATEGORY_HASH and CROSS, or a column of texts; for EMBEDDING
also one of integers.
"""

import tensorflow as tf

NUMBERS = ("NUMERIC", "DENSE")
_BUCKETS_PER_TEXT = 8
_FEW = 100
_IDS = 1 << 62
_MAX_EXACT = 1 << 24
"""The input function makes floats of 32 bits, which cannot tell larger integers apart."""


def embedding_of(term):
    """Arguments of the embedding of a term: the length of a row and the combiner; None without."""
    if isinstance(term, str) or term[0] != "EMBEDDING":
        return None
    return term[2], term[3] if len(term) > 3 else "sum"


def columns_in(term):
    """The names of the columns of a term, repeated as they occur."""
    if isinstance(term, str):
        return [term]
    inner = term[1] if term[0] == "CROSS" else [term[1]]
    return [name for each in inner for name in columns_in(each)]


def check_term(term, known):
    """Check that the columns of a term are there and hold what its function takes.

    Args:
        known: the columns by name.

    Raises:
        ValueError: they do not.
    """
    if isinstance(term, str):
        if term not in known:
            raise ValueError(f"there is no column {term}; there are {', '.join(known)}")
        return
    name, inner = term[0], term[1]
    for each in inner if name == "CROSS" else [inner]:
        check_term(each, known)
        if not isinstance(each, str):
            continue
        column = known[each]
        if column.is_text and name in (*NUMBERS, "BUCKET", "CATEGORY_ID"):
            raise ValueError(f"{name} is of numbers, and {each} is a text: take CATEGORY_HASH")
        if not column.is_text and name == "INDICATOR":
            raise ValueError(
                f"INDICATOR is of categories, and {each} is a number: write "
                f"INDICATOR(CATEGORY_ID({each}, n)), CATEGORY_HASH or BUCKET"
            )
        greatest = max(abs(column.least), abs(column.greatest))
        if greatest > _MAX_EXACT and name not in (*NUMBERS, "BUCKET"):
            raise ValueError(
                f"{each} has integers beyond {_MAX_EXACT}, which {name} cannot tell apart: "
                "CAST them to texts"
            )
        if name == "CROSS" and column.width != 1:
            raise ValueError(f"CROSS is of single values, and {each} has {column.width}")


def category_ids(term, columns, known):
    """The categories that rows belong to: ids (n, values), -1 for none of them."""
    if isinstance(term, str):
        return _own_ids(columns[term], known[term])
    name, inner, argument = term[0], term[1], term[2]
    if name == "CROSS":
        parts = [_as_text(category_ids(each, columns, known)) for each in inner]
        return tf.strings.to_hash_bucket_fast(tf.strings.join(parts, "|"), argument)
    if name == "BUCKET":
        numbers = tf.cast(columns[_column_in(inner)], tf.float32)
        bounds = tf.constant(argument, tf.float32)
        ids = tf.reduce_sum(tf.cast(numbers[..., None] >= bounds, tf.int64), axis=-1)
        return tf.where(tf.math.is_nan(numbers), tf.constant(-1, tf.int64), ids)
    column = columns[inner]
    if name == "CATEGORY_ID":
        ids = _whole(column)
        inside = (ids >= 0) & (ids < argument)
        return tf.where(inside, ids, tf.constant(-1, tf.int64))
    if column.dtype == tf.string:
        return tf.strings.to_hash_bucket_fast(column, argument)
    ids = tf.strings.to_hash_bucket_fast(_as_text(_whole(column)), argument)
    is_null = tf.math.is_nan(tf.cast(column, tf.float32))
    return tf.where(is_null, tf.constant(-1, tf.int64), ids)


def indicator(term, columns, known):
    """An input for each category: (n, categories), 1 where a row belongs to it."""
    size = indicator_size(term, known)
    ids = category_ids(term, columns, known)
    if isinstance(term, str):
        ids %= size
    return tf.reduce_max(tf.one_hot(ids, size), axis=1)


def indicator_size(term, known):
    """How many inputs ``indicator`` makes of a term."""
    if isinstance(term, str):
        return _BUCKETS_PER_TEXT * min(max(known[term].vocabulary, 1), _FEW)
    return len(term[2]) + 1 if term[0] == "BUCKET" else term[2]


def _own_ids(column, known):
    if not known.is_text:
        return _whole(column)
    size = _BUCKETS_PER_TEXT * max(known.vocabulary, 1) if known.vocabulary <= _FEW else _IDS
    return tf.strings.to_hash_bucket_fast(column, size)


def _whole(column):
    numbers = tf.cast(column, tf.float32)
    there = tf.where(tf.math.is_nan(numbers), tf.constant(-1.0), numbers)
    return tf.cast(there, tf.int64)


def _as_text(ids):
    return tf.strings.as_string(ids)


def _column_in(term):
    return term if isinstance(term, str) else term[1]
