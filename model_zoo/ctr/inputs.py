"""Dataset functions that give both data sets the same features: float ``numbers`` and int64 ``ids``."""

import tensorflow as tf

from elasticdl.python.common.constants import Mode

_AT_ONCE = 512
"""Records that are parsed together, which is twice as fast as one by one; any number will do."""

CRITEO_NUMBERS, CRITEO_FIELDS = 13, 26
CENSUS_NUMBERS = ("age", "education_years", "capital_gain", "hours_per_week")
CENSUS_FIELDS = (
    "workclass",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "country",
)


def _by_field(ids):
    """Distinct ids for the same value in different fields."""
    fields = tf.range(tf.shape(ids)[-1], dtype=tf.int64)
    return ids * 64 + fields


def criteo(dataset, mode):
    """Clicks: 13 counts, 26 hashed categories, and the label ``click``, 0 or 1."""
    description = {
        "numbers": tf.io.FixedLenFeature([CRITEO_NUMBERS], tf.float32),
        "ids": tf.io.FixedLenFeature([CRITEO_FIELDS], tf.int64),
        "click": tf.io.FixedLenFeature([1], tf.int64, default_value=[0]),
    }

    def parse(records):
        example = tf.io.parse_example(records, description)
        features = {
            "numbers": tf.math.log1p(tf.maximum(example["numbers"], 0.0)),
            "ids": _by_field(example["ids"]),
        }
        if mode == Mode.PREDICTION:
            return features
        return features, tf.cast(example["click"], tf.float32)

    if mode == Mode.TRAINING:
        dataset = dataset.shuffle(4096)
    return dataset.batch(_AT_ONCE).map(parse)


def census(dataset, mode):
    """Census: numbers and words about a person; the label ``income`` is 1 if it is high."""
    description = {name: tf.io.FixedLenFeature([1], tf.float32) for name in CENSUS_NUMBERS}
    description |= {name: tf.io.FixedLenFeature([1], tf.string) for name in CENSUS_FIELDS}
    description["income"] = tf.io.FixedLenFeature([1], tf.int64, default_value=[0])
    scale = tf.constant([40.0, 10.0, 5000.0, 40.0])

    def parse(records):
        example = tf.io.parse_example(records, description)
        words = tf.concat([example[name] for name in CENSUS_FIELDS], 1)
        features = {
            "numbers": tf.concat([example[name] for name in CENSUS_NUMBERS], 1) / scale,
            # The hash of a word is its id, so no vocabulary is needed.
            "ids": _by_field(tf.strings.to_hash_bucket_fast(words, 1 << 56)),
        }
        if mode == Mode.PREDICTION:
            return features
        return features, tf.cast(example["income"], tf.float32)

    if mode == Mode.TRAINING:
        dataset = dataset.shuffle(4096)
    return dataset.batch(_AT_ONCE).map(parse)
