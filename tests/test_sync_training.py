"""N synchronous workers give the weights of one process with the big batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import Edl
from safetensors.numpy import load_file

import recordio
import recordio.example

MODEL = """
import keras
import tensorflow as tf

model = keras.Sequential([
    keras.Input((3,), name="x"),
    keras.layers.Dense(5, activation="tanh",
                       kernel_initializer=keras.initializers.GlorotUniform(seed=1)),
    keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=2)),
])


def dataset_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "x": tf.io.FixedLenFeature([3], tf.float32),
            "y": tf.io.FixedLenFeature([1], tf.float32)})
        return r["x"], r["y"]

    return dataset.map(parse).shuffle(16)


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(labels - predictions))


def optimizer():
    return keras.optimizers.Adam(0.05)
"""
CLIPPED = MODEL.replace("Adam(0.05)", "SGD(0.05, momentum=0.9, global_clipnorm=0.05)")
EPOCHS, RECORDS = 12, 100


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[np.ndarray]]:
    return make_problem(tmp_path_factory.mktemp("sync"), EPOCHS)


def make_problem(
    place: Path, epochs: int, text: str = MODEL
) -> tuple[Path, Path, list[np.ndarray]]:
    """A zoo, 100 records, and the weights that Keras finds with the whole data as one batch."""
    (place / "zoo").mkdir()
    (place / "zoo" / "small.py").write_text(text)
    random = np.random.default_rng(7)
    x = random.normal(size=(RECORDS, 3)).astype(np.float32)
    y = np.sin(x.sum(axis=1, keepdims=True)).astype(np.float32)
    with recordio.Writer(str(place / "data.recordio")) as writer:
        for row, value in zip(x, y, strict=True):
            writer.write(recordio.example.encode({"x": row, "y": value}))
    scope: dict[str, object] = {}
    exec(compile(text, "small.py", "exec"), scope)
    model = scope["model"]
    model.compile(optimizer=scope["optimizer"](), loss=scope["loss"])
    model.fit(x, y, batch_size=RECORDS, epochs=epochs, verbose=0)
    return place / "zoo", place / "data.recordio", model.get_weights()


@pytest.mark.parametrize(("workers", "servers"), [(3, 0), (2, 2)])
def test_the_weights_of_one_big_batch(
    edl: Edl,
    tmp_path: Path,
    problem: tuple[Path, Path, list[np.ndarray]],
    workers: int,
    servers: int,
) -> None:
    zoo, data, expected = problem
    # 100 records in tasks of 21 in minibatches of 8: 14 gradients, of 8, 5 or 4.
    result = edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "small", "--data", str(data)),
        *("--update", "sync", "--grads-to-wait", "14", "--num-workers", str(workers)),
        *("--num-epochs", str(EPOCHS), "--minibatch-size", "8", "--records-per-task", "21"),
        *("--output", str(tmp_path / "model"), "-o", "json"),
        *("--parameter-servers", str(servers)),
    ).json
    assert result["records_trained"] == EPOCHS * RECORDS
    assert result["steps"] == EPOCHS * 14
    found = sorted(load_file(tmp_path / "model" / "parameters.safetensors").values(), key=np.size)
    for ours, keras in zip(found, sorted(expected, key=np.size), strict=True):
        np.testing.assert_allclose(ours, keras, rtol=2e-4, atol=2e-5)


def test_servers_clip_by_the_norm_of_all_parts_as_keras_does(edl: Edl, tmp_path: Path) -> None:
    """Every gradient is larger than the limit, so a norm of one part alone would show."""
    epochs = 60
    zoo, data, expected = make_problem(tmp_path, epochs, CLIPPED)
    edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "small", "--data", str(data), "-q"),
        *("--num-epochs", str(epochs), "--minibatch-size", str(RECORDS)),
        *("--records-per-task", str(RECORDS), "--parameter-servers", "3"),
        *("--output", str(tmp_path / "model")),
    )
    found = sorted(load_file(tmp_path / "model" / "parameters.safetensors").values(), key=np.size)
    for ours, keras in zip(found, sorted(expected, key=np.size), strict=True):
        np.testing.assert_allclose(ours, keras, rtol=1e-4, atol=1e-5)
