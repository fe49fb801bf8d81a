"""Classifies a sentence as kind or unkind, by the mean of its word embeddings and two layers.

    edl train --model-zoo model_zoo --model-def text.sentiment --params "vocabulary=8192" ...

``vocabulary`` and ``length`` go to the model function and to the dataset function, because both
have parameters of these names.

Records: tf.Example with ``text`` (bytes) and ``kind`` (int64, 0 or 1).
"""

import tensorflow as tf

from elasticdl.python.common.constants import Mode


def build_model(vocabulary=4096, length=32, width=16):
    words = tf.keras.Input(shape=(length,), dtype="int64", name="words")
    x = tf.keras.layers.Embedding(vocabulary, width, mask_zero=True)(words)
    x = tf.keras.layers.GlobalAveragePooling1D()(x)
    x = tf.keras.layers.Dense(width, activation="relu")(x)
    return tf.keras.Model(words, tf.keras.layers.Dense(1)(x), name="sentiment")


def dataset_fn(dataset, mode, vocabulary=4096, length=32):
    description = {"text": tf.io.FixedLenFeature([], tf.string)}
    if mode != Mode.PREDICTION:
        description["kind"] = tf.io.FixedLenFeature([1], tf.int64)

    def parse(record):
        example = tf.io.parse_single_example(record, description)
        words = tf.strings.split(tf.strings.lower(example["text"]))[:length]
        # 0 is padding after the end of the sentence.
        numbers = 1 + tf.strings.to_hash_bucket_fast(words, vocabulary - 1)
        features = {"words": tf.pad(numbers, [[0, length - tf.size(numbers)]])}
        features["words"] = tf.ensure_shape(features["words"], [length])
        return features if mode == Mode.PREDICTION else (features, example["kind"])

    dataset = dataset.map(parse)
    return dataset.shuffle(4096) if mode == Mode.TRAINING else dataset


loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)


def optimizer(learning_rate=0.01):
    return tf.keras.optimizers.Adam(learning_rate)


def eval_metrics_fn():
    return {
        "auc": tf.keras.metrics.AUC(from_logits=True),
        "accuracy": tf.keras.metrics.BinaryAccuracy(threshold=0.0),
    }
