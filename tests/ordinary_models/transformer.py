"""A small Transformer that judges reviews. First, once: python transformer.py TABLE."""

import csv
import json
import sys
from pathlib import Path

import keras
import tensorflow as tf
from keras import layers, ops

WORDS, LENGTH, WIDTH = 1000, 24, 32
STATE = Path(__file__).with_name("transformer.json")


def adapt(table):
    with open(table, newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    vectorize = layers.TextVectorization(WORDS, output_sequence_length=LENGTH)
    vectorize.adapt(texts)
    STATE.write_text(json.dumps(vectorize.get_vocabulary()))


if __name__ == "__main__":
    adapt(sys.argv[1])

vectorize = layers.TextVectorization(
    WORDS, output_sequence_length=LENGTH, vocabulary=json.loads(STATE.read_text())
)


class Embedding(layers.Layer):
    """Add the embedding of each word to that of its position."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.word = layers.Embedding(WORDS, WIDTH)
        self.position = layers.Embedding(LENGTH, WIDTH)

    def call(self, words):
        return self.word(words) + self.position(ops.arange(LENGTH))


class Block(layers.Layer):
    def __init__(self, heads=2, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(heads, WIDTH, dropout=rate)
        self.hidden = layers.Dense(2 * WIDTH, activation="gelu")
        self.back = layers.Dense(WIDTH)
        self.norms = [layers.LayerNormalization(), layers.LayerNormalization()]
        self.dropout = layers.Dropout(rate)

    def call(self, x):
        x = self.norms[0](x + self.attention(x, x))
        return self.norms[1](x + self.dropout(self.back(self.hidden(x))))


def build_model():
    words = keras.Input((LENGTH,), dtype="int64")
    x = Block()(Embedding()(words))
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    return keras.Model(words, layers.Dense(2, activation="softmax")(x))


def dataset_fn(dataset, mode):
    def parse(row):
        text, label = tf.io.decode_csv(row, [[""], [0]])
        return vectorize(text), label

    return dataset.map(parse)


loss = "sparse_categorical_crossentropy"
optimizer = "adam"
metrics = ["accuracy"]
