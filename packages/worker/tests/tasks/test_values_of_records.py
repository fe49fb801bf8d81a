"""What a trial run says of labels, weights and metrics that are no numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from example_data import example
from model_files import LOSS, MODEL, REST
from trial_jobs import refusal, write_rows
from zoo_folder import ZooFolder

import recordio
from edl_proto.errors import ErrorCode


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_rows(tmp_path / "data.recordio")


@pytest.mark.parametrize(
    "rest",
    ["loss = tf.keras.losses.MeanSquaredError()", "loss = 'mse'\nmetrics = ['mae']", LOSS],
    ids=["a loss of Keras", "a metric of Keras", "a function"],
)
def test_labels_that_are_strings(zoo: ZooFolder, data: str, rest: str) -> None:
    source = REST.replace('}, r["y"]', '}, tf.strings.as_string(r["y"])')
    error = refusal(zoo, data, source + rest + MODEL)
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert "the labels are strings" in error.what
    assert "tf.strings.to_number(label)" in error.remedy
    assert "traceback" not in error.remedy
    assert "mine.py" in error.where


@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("weight", ["nan", "inf"])
def test_sample_weights_that_are_not_finite(
    zoo: ZooFolder, data: str, weight: str, local_steps: int
) -> None:
    weighted = f'}}, r["y"], tf.where(r["y"][0] > -0.5, 1.0, np.{weight})'
    source = REST.replace('}, r["y"]', weighted)
    error = refusal(zoo, data, source + LOSS + MODEL, local_steps=local_steps)
    assert error.code == ErrorCode.NAN_LOSS
    assert "the sample weights are not finite" in error.what
    assert "edl data inspect --check" in error.remedy
    line = zoo.line("mine.py", "def dataset_fn")
    assert error.where == f"{zoo.root}/mine.py:{line}, dataset_fn, {data}"


def test_features_and_labels_that_are_not_finite_are_named(zoo: ZooFolder, data: str) -> None:
    error = refusal(zoo, data, REST.replace('r["x"]}', 'r["x"] / 0}') + LOSS + MODEL)
    assert "the features x are not finite" in error.what
    error = refusal(zoo, data, REST.replace('}, r["y"]', '}, r["y"] / 0') + LOSS + MODEL)
    assert error.code == ErrorCode.NAN_LOSS
    assert "the labels are not finite" in error.what


ROWS = """
def dataset_fn(dataset, mode):
    def parse(row):
        width, kind, length, label = tf.io.decode_csv(row, [[0.0], [""], [0.0], [0.0]])
        return {"x": tf.stack([width, length])}, label[None]
    return dataset.map(parse)

def optimizer(lr=0.1):
    return tf.keras.optimizers.SGD(lr)
"""


def test_a_value_that_is_not_finite_is_named_with_its_column_and_line(
    zoo: ZooFolder, tmp_path: Path
) -> None:
    rows = [f"{n}.5,{'nan' if n == 1 else 'rose'},{n}.25,1" for n in range(8)]
    rows[4] = "4.5,lily,NaN,1"
    data = tmp_path / "flowers.csv"
    data.write_text("\n".join(["width,kind,length,label", *rows]))
    error = refusal(zoo, str(data), ROWS + LOSS + MODEL)
    assert error.code == ErrorCode.DATA_DAMAGED
    assert error.what.endswith(f"the features x are not finite; length=NaN at {data}:6")
    assert error.where.startswith(f"{data}:6, read by {zoo.root}/mine.py:")
    assert "edl data inspect --check" in error.remedy


def test_a_feature_that_is_not_finite_is_named_with_its_record(
    zoo: ZooFolder, tmp_path: Path
) -> None:
    data = str(tmp_path / "data.recordio")
    with recordio.Writer(data) as writer:
        for number in range(8):
            x = np.array([number, np.inf if number == 3 else 1.0], np.float32)
            writer.write(example(x=x, y=np.array([1.0], np.float32)))
    error = refusal(zoo, data, REST + LOSS + MODEL)
    assert error.code == ErrorCode.DATA_DAMAGED
    assert error.what.endswith(f"; x=inf at {data}, record 3")
