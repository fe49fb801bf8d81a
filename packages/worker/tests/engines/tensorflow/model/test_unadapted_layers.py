"""Layers that were never adapted are refused, unless their state comes from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from trial_jobs import load, write_rows
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode

MODEL = """
import keras
from keras import layers

normalize = {layer}
model = keras.Sequential([keras.Input((2,)), normalize, layers.Dense(1)])
loss = "mse"
optimizer = keras.optimizers.SGD(0.01)

def dataset_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {{"x": tf.io.FixedLenFeature([2], tf.float32)}})
        return r["x"], r["x"][:1]
    return dataset.map(parse)
"""
NEVER = "layers.Normalization()"


def test_a_normalization_without_state_has_a_place(tmp_path: Path, zoo: ZooFolder) -> None:
    with pytest.raises(EdlError) as caught:
        load(zoo, write_rows(tmp_path / "data.recordio"), MODEL.format(layer=NEVER))
    assert caught.value.code == ErrorCode.MODEL_CONTRACT
    assert "was never adapted" in caught.value.what
    line = (
        (tmp_path / "mine.py")
        .read_text()
        .splitlines()[int(caught.value.where.rpartition(":")[2]) - 1]
    )
    assert NEVER in line


@pytest.mark.parametrize(
    "layer",
    [
        "layers.Normalization(mean=[0.0, 0.0], variance=[1.0, 1.0])",
        f"{NEVER}\nnormalize.adapt(np.array([[1.0, 2.0], [3.0, 5.0]]))",
        # Keras's own EfficientNet has such a layer.
        "keras.applications.EfficientNetB0(weights=None).get_layer('normalization')\n"
        "normalize = layers.Rescaling(1.0)",
    ],
)
def test_what_is_no_mistake(tmp_path: Path, zoo: ZooFolder, layer: str) -> None:
    load(zoo, write_rows(tmp_path / "data.recordio"), MODEL.format(layer=layer))
