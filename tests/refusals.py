"""Every refusal of a command has a documented exit code, and one screen that helps."""

from __future__ import annotations

from pathlib import Path

from conftest import ROOT, Done, Edl

SCREEN = 50  # lines
USAGE, DATA, MODEL, RESOURCE, FAILED = 2, 3, 4, 7, 1


def attempt(
    edl: Edl,
    tmp_path: Path,
    data: Path | str,
    *more: str,
    model_def: str = "mnist.mnist_functional_api",
    zoo: Path = ROOT / "model_zoo",
) -> Done:
    return edl.run(
        *("train", "--model-zoo", str(zoo), "--model-def", model_def, "--data", str(data)),
        *("--minibatch-size", "32", "--output", str(tmp_path / "model"), *more),
    )


def check_refusal(done: Done, code: int, *words: str) -> None:
    """Check that a failure is documented, fits a screen, and says these words."""
    assert done.code == code, str(done)
    lines = done.err.splitlines()
    assert len(lines) <= SCREEN, str(done)
    for word in words:
        assert word in done.err, f"{word!r} is not shown\n{done}"
    assert "what to do" in done.err, str(done)
    left = list(Path(done.args[done.args.index("--output") + 1]).parent.glob("*model*"))
    assert not left, left


def nothing_began(edl: Edl) -> None:
    assert not list(edl.home.glob("jobs/*"))


GOOD = """
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((28, 28), name="image"), keras.layers.Flatten(),
                          keras.layers.Dense(10)])


def dataset_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "image": tf.io.FixedLenFeature([28, 28], tf.float32),
            "label": tf.io.FixedLenFeature([1], tf.int64)})
        return r["image"] / 255.0, r["label"]

    return dataset.map(parse)


def loss(labels, predictions):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        logits=predictions, labels=tf.reshape(labels, [-1])))


def optimizer():
    return keras.optimizers.SGD(0.01)
"""
"""A model file for the digits."""
