"""The state of layers that is no weight belongs to the trained model, not to a file beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract_cases import GOOD
from example_data import float_images
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.layer_state import LayerState
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.model_file.errors import ContractErrors
from edl_worker.trained_model import layer_states

FILE = """
import json
import keras
DATA = json.loads(open({data!r}).read())
L = keras.layers
{layer}
"""

LAYERS = {
    "adapted strings": ("it = L.StringLookup()\nit.adapt(DATA['words'])", ["b", "new", "c"]),
    "a list of strings": ("it = L.StringLookup(vocabulary=DATA['words'])", ["b", "new", "c"]),
    "set_vocabulary": ("it = L.StringLookup()\nit.set_vocabulary(DATA['words'])", ["b", "new"]),
    "one-hot": ("it = L.StringLookup(output_mode='one_hot')\nit.adapt(DATA['words'])", ["b"]),
    "weighted": (
        "it = L.StringLookup(output_mode='tf_idf', pad_to_max_tokens=True, max_tokens=9)\n"
        "it.adapt(np.array([DATA['words'][:2], DATA['words'][1:3]]))",
        [["b", "new"]],
    ),
    "integers": ("it = L.IntegerLookup()\nit.adapt(DATA['integers'])", [7, 9, 3]),
    "inverse": (
        "of = L.StringLookup(vocabulary=DATA['words'])\n"
        "it = L.StringLookup(vocabulary=of.get_vocabulary(), invert=True)",
        [1, 2, 3],
    ),
    "text": (
        "it = L.TextVectorization(output_sequence_length=4)\nit.adapt([' '.join(DATA['words'])])",
        ["b new", "c a"],
    ),
    "adapted numbers": (
        "it = L.Normalization(axis=None)\nit.adapt(np.array(DATA['numbers']))",
        [1.0, 5.0],
    ),
    "given numbers": (
        "it = L.Normalization(axis=-1, mean=np.mean(DATA['numbers']), variance=2.0)",
        [[1.0], [5.0]],
    ),
    "adapted boundaries": (
        "it = L.Discretization(num_bins=3)\nit.adapt(np.array(DATA['numbers']))",
        [1.0, 5.0, 30.0],
    ),
    "given boundaries": ("it = L.Discretization(bin_boundaries=DATA['numbers'])", [1.0, 5.0]),
    "several in a closure": (
        "def make():\n"
        "    layers = {name: L.StringLookup(vocabulary=DATA['words']) for name in 'xy'}\n"
        "    return lambda value: layers['y'](value)\n"
        "it = make()",
        ["b", "new"],
    ),
}
BEFORE = {"words": ["a", "b", "c"], "integers": [3, 7, 7, 5], "numbers": [1.0, 2.0, 4.0]}
AFTER = {"words": ["new", "c", "b", "d"], "integers": [9, 9, 3], "numbers": [5.0, 20.0, 40.0]}


def load(zoo: ZooFolder, data: dict[str, Any], layer: str, **options: Any) -> ModelFile:
    path = zoo.root / "data.json"
    path.write_text(json.dumps(data))
    zoo.write("mine.py", FILE.format(data=str(path), layer=layer) + "\n".join(GOOD.values()))
    return zoo.load("mine", **options)


def outputs(values: list[Any]) -> Any:
    return np.asarray(sys.modules["mine"].it(np.array(values))).tolist()


@pytest.mark.parametrize("case", LAYERS)
def test_a_layer_has_the_state_that_the_model_was_trained_with(
    zoo: ZooFolder, tmp_path: Path, case: str
) -> None:
    layer, values = LAYERS[case]
    states = load(zoo, BEFORE, layer).layer_states
    expected = outputs(values)
    layer_states.save(states, tmp_path / "states.json")

    load(zoo, AFTER, layer)
    assert outputs(values) != expected, "the test needs a state that makes a difference"

    restored = load(zoo, AFTER, layer, saved=layer_states.read(tmp_path / "states.json"))
    assert outputs(values) == expected
    assert [s.summarize() for s in restored.layer_states] == [s.summarize() for s in states]


@pytest.mark.parametrize("case", LAYERS)
def test_summaries_tell_states_apart(zoo: ZooFolder, case: str) -> None:
    layer, _ = LAYERS[case]
    first = load(zoo, BEFORE, layer).layer_states
    again = load(zoo, BEFORE, layer).layer_states
    other = load(zoo, AFTER, layer).layer_states
    assert [s.summarize() for s in first] == [s.summarize() for s in again]
    assert [s.summarize() for s in first] != [s.summarize() for s in other]
    file, _, line = first[0].place.partition(":")
    source = (zoo.root / file).read_text().splitlines()[int(line) - 1]
    assert "L." in source or ".adapt(" in source or ".set_vocabulary(" in source


def test_what_follows_from_a_vocabulary_follows_from_the_restored_one(zoo: ZooFolder) -> None:
    layer = (
        "it = L.StringLookup()\nit.adapt(DATA['words'])\n"
        "size = L.Embedding(it.vocabulary_size(), 2).input_dim"
    )
    states = load(zoo, BEFORE, layer).layer_states
    load(zoo, {**AFTER, "words": list("abcdefgh")}, layer, saved=states)
    assert sys.modules["mine"].size == 4


def test_a_layer_that_the_file_does_not_make_is_named(zoo: ZooFolder) -> None:
    states = load(zoo, BEFORE, "it = L.StringLookup(name='city', vocabulary=['a'])").layer_states
    with pytest.raises(ContractErrors) as caught:
        load(zoo, BEFORE, "it = L.StringLookup(name='town', vocabulary=['a'])", saved=states)
    (error,) = caught.value.errors
    assert error.code == ErrorCode.SHAPE_MISMATCH
    line = zoo.line("mine.py", "it = ")
    assert f"StringLookup city (mine.py:{line})" in error.what


def test_a_layer_must_not_be_adapted_to_the_records_of_one_task(zoo: ZooFolder) -> None:
    function = GOOD["dataset_fn"].replace(
        "    return dataset.map(parse)", "    it.adapt(['a'])\n    return dataset.map(parse)"
    )
    zoo.write(
        "mine.py",
        "import keras\nit = keras.layers.StringLookup()\n"
        + "\n".join({**GOOD, "dataset_fn": function}.values()),
    )
    file = zoo.load("mine")
    with pytest.raises(Exception, match="StringLookup string_lookup is adapted after") as caught:
        batches(file, float_images(8))
    line = zoo.line("mine.py", "it.adapt")
    assert getattr(caught.value, "where", "") == f"{zoo.root / 'mine.py'}:{line}"


def test_last_digits_are_no_other_state() -> None:
    one = LayerState("Normalization n", "", {"mean": [1.0, 2.0], "variance": [3.0, 4.0]})
    many = LayerState("StringLookup s", "", {"idf_weights": [0.5] * 100_000})
    assert one.summarize().numbers == (1.0, 2.0, 3.0, 4.0)
    assert len(many.summarize().numbers) <= 256
    other = LayerState("Normalization n", "", {"mean": [1.0], "variance": [2.0, 3.0, 4.0]})
    assert other.summarize().digest != one.summarize().digest
    nan = LayerState("Normalization n", "", {"mean": [float("nan")]})
    assert nan.summarize().numbers == ()
    assert nan.summarize() == nan.summarize()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "layer_states.json"
    for content in ("", "{", "[]", '{"layers": [{"name": "x"}]}', '{"layers": 3}'):
        path.write_text(content)
        with pytest.raises(EdlError) as caught:
            layer_states.read(path)
        assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED
