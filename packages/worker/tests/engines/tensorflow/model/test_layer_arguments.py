"""Layers whose arguments come from a file are those of the trained model, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract_cases import GOOD, only
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.layer_state import LayerState
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.model_file.errors import ContractErrors
from edl_worker.trained_model import layer_states

FILE = """
import os
SCALE = float(open(os.path.join(os.path.dirname(__file__), "scale.txt")).read())
L = tf.keras.layers

@tf.keras.utils.register_keras_serializable()
class Words(L.Layer):
    def __init__(self, words="", **options):
        super().__init__(**options)
        self.words = words or str(SCALE)
    def call(self, inputs):
        return inputs * len(self.words)
    def save_assets(self, folder):
        open(os.path.join(folder, "words.txt"), "w").write(self.words)
    def load_assets(self, folder):
        self.words = open(os.path.join(folder, "words.txt")).read()

LAYER = {layer}
model = tf.keras.Sequential([tf.keras.Input((28, 28)), LAYER, L.Flatten(), L.Dense(10)])
"""

LAYERS = {
    "a scale": ("L.Rescaling(SCALE)", "Rescaling rescaling: scale is 0.5, and was 0.25"),
    "an array": (
        "L.Rescaling(np.full(28, SCALE), offset=1.0)",
        "Rescaling rescaling: scale is [0.5, 0.5, ",
    ),
    "a rate that is none of a dropout": (
        "L.Conv1D(28, 3, padding='same', dilation_rate=1 + int(SCALE * 2))",
        "Conv1D conv1d: dilation_rate is [2], and was [1]",
    ),
    "within a layer": (
        "L.TimeDistributed(L.Rescaling(1.0, offset=SCALE))",
        "offset is 0.5, and was 0.25",
    ),
    "within a model": (
        "tf.keras.Sequential([tf.keras.Input((28, 28)), L.Rescaling(SCALE)])",
        "Rescaling rescaling: scale is 0.5, and was 0.25",
    ),
    "outside of the model": (
        "L.Rescaling(1.0)\nnumber = L.Hashing(5, salt=int(100 * SCALE))",
        "Hashing hashing: salt is [50, 50], and was [25, 25]",
    ),
}
EQUAL_FOR_PREDICTIONS = {
    "what only training uses": "L.Dense(28, kernel_regularizer=tf.keras.regularizers.L2(SCALE))",
    "the rate of a dropout": "L.Dropout(SCALE)",
    "a function": "L.Lambda(lambda x: x)",
    "a random seed": "L.GaussianNoise(0.1, seed=int(100 * SCALE))",
}


def load(zoo: ZooFolder, scale: str, layer: str, saved: tuple[LayerState, ...] = ()) -> ModelFile:
    zoo.write("scale.txt", scale, imports=False)
    rest = (text for name, text in GOOD.items() if name != "model")
    zoo.write("mine.py", "\n".join([FILE.replace("{layer}", layer), *rest]))
    return zoo.load("mine", saved=saved)


def through_file(states: tuple[LayerState, ...], folder: Path) -> tuple[LayerState, ...]:
    layer_states.save(states, folder / "states.json")
    return layer_states.read(folder / "states.json")


@pytest.mark.parametrize("case", LAYERS)
def test_other_arguments_than_in_training_are_refused_with_both_values(
    zoo: ZooFolder, tmp_path: Path, case: str
) -> None:
    layer, expected = LAYERS[case]
    saved = through_file(load(zoo, "0.25", layer).layer_states, tmp_path)
    load(zoo, "0.25", layer, saved)
    load(zoo, "0.25000001", layer, saved)  # from another processor
    with pytest.raises(ContractErrors) as caught:
        load(zoo, "0.5", layer, saved)
    error = only(caught.value.errors)
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert expected in error.what


@pytest.mark.parametrize("case", EQUAL_FOR_PREDICTIONS)
def test_what_changes_no_prediction_may_differ(zoo: ZooFolder, case: str) -> None:
    layer = EQUAL_FOR_PREDICTIONS[case]
    saved = load(zoo, "0.25", layer).layer_states
    load(zoo, "0.5", layer, saved)


def test_files_that_a_layer_of_the_user_saves_come_from_the_trained_model(
    zoo: ZooFolder, tmp_path: Path
) -> None:
    saved = through_file(load(zoo, "0.25", "Words()").layer_states, tmp_path)
    ones = np.ones((1, 28, 28), np.float32)

    def output(file: ModelFile) -> float:
        return float(np.asarray(file.model.layers[0](ones)).max())

    assert output(load(zoo, "0.125", "Words()")) == len("0.125")
    assert output(load(zoo, "0.125", "Words()", saved)) == len("0.25")


def test_files_that_a_layer_cannot_load_again_are_refused(zoo: ZooFolder) -> None:
    layer = "type('Words', (Words,), {'load_assets': lambda self, folder: 1 / 0})()"
    saved = load(zoo, "0.25", layer).layer_states
    with pytest.raises(ContractErrors) as caught:
        load(zoo, "0.125", layer, saved)
    assert "assets is another file" in only(caught.value.errors).what


@pytest.mark.parametrize("layer", [*(layer for layer, _ in LAYERS.values()), "Words()"])
def test_workers_are_compared_by_arguments(zoo: ZooFolder, layer: str) -> None:
    def summaries(scale: str) -> list[Any]:
        return [state.summarize() for state in load(zoo, scale, layer).layer_states]

    first = summaries("0.25")
    assert first == summaries("0.25")
    assert first != summaries("0.5")
    assert all(summary.optional for summary in first)


def test_the_master_takes_every_name() -> None:
    names = [f"file /data/{'x' * 400}/a{part}\n.csv" for part in range(2)]
    found = [LayerState(name, name, {"sha256": "1f"}).summarize() for name in names]
    assert found[0].name != found[1].name
    for summary in found:
        for text in (summary.name, summary.place):
            assert len(text) <= 256
            assert text.endswith(".csv")
            assert text.isprintable()


@pytest.mark.parametrize("name", ["../words.txt", "/tmp/words.txt", ".."])
def test_a_trained_model_writes_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    state = LayerState("Words words", "", {"assets": {name: "YQ=="}}, optional=True)
    layer_states.save([state], tmp_path / "states.json")
    with pytest.raises(EdlError) as caught:
        layer_states.read(tmp_path / "states.json")
    assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED
