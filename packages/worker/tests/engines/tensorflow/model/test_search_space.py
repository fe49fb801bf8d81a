"""The names that ``build_model(hp)`` asks for, also those of some models only."""

from __future__ import annotations

from zoo_folder import ZooFolder

from edl_worker.engines.tensorflow.model.search_space import read_search_space

SOURCE = """
import keras

def build_model(hp, size=2):
    model = keras.Sequential([keras.Input((size,))])
    for number in range(hp.Int("layers", 0, 2)):
        model.add(keras.layers.Dense(hp.Int(f"units_{number}", 1, 2)))
    if hp.Choice("head", ["plain", "dropped", "broken"]) == "dropped":
        model.add(keras.layers.Dropout(hp.Float("rate", 0.1, 0.5)))
    elif hp.get("head") == "broken":
        raise RuntimeError("not with this head")
    model.add(keras.layers.Dense(1))
    return model
"""


def test_names_of_some_models_only_are_found(zoo: ZooFolder) -> None:
    zoo.write("mine.py", SOURCE)
    found = read_search_space(zoo.reference("mine", params="size=3, hp={'units_0': 2}"))
    names = ["layers", "head", "units_0", "units_1", "rate"]
    assert [each["name"] for each in found] == names
    assert found[0] == {
        "name": "layers",
        "type": "int",
        "low": 0,
        "high": 2,
        "step": None,
        "log": False,
        "default": 0,
        "conditions": [],
    }


def test_a_model_without_hp_has_no_search_space(zoo: ZooFolder) -> None:
    zoo.write("mine.py", "import keras\nmodel = keras.Sequential([keras.layers.Dense(1)])\n")
    assert read_search_space(zoo.reference("mine")) == []
