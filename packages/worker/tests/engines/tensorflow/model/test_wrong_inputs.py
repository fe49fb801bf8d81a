"""Model files as people who know Keras write them, each with one mistake: what, where, a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from trial_jobs import load, write_rows
from wrong_inputs import BASE, CASES, MODEL, NET, PARSE
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError

OUTPUTS = {
    "model": "x = keras.Input((2,))\n"
    "model = keras.Model(x, [layers.Dense(1, name='a')(x), layers.Dense(1, name='b')(x)])\n",
    "parse": PARSE.replace("tf.cast(r[", "{'a': 1.0, 'b': tf.cast(r[").replace("int64)", "int64)}"),
    "loss": "loss = {'a': 'mse', 'b': 'mse'}\n",
}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"loss": "loss = {'a': 'mse'}"}, "has no loss for the output b"),
        ({"loss": "loss = ['mse', 'mse', 'mse']"}, "3 parts in loss, and the model has 2 outputs"),
        ({"more": "loss_weights = {'aa': 1.0, 'b': 1.0}"}, "names 'aa' in loss_weights"),
        ({"more": "loss_weights = [1.0]"}, "1 parts in loss_weights"),
        ({"more": "metrics = {'aa': ['mae'], 'b': ['mae']}"}, "names 'aa', but the outputs"),
        ({"loss": "loss = 'mse'", "parse": PARSE}, "yields 1 label"),
        ({"parse": PARSE.replace('return r["x"],', "return None,")}, "yields None among"),
        (
            {"parse": OUTPUTS["parse"].replace('return r["x"]', "return tf.as_string(r['x'])")},
            "has the type string, and the model's input",
        ),
    ],
)
def test_parts_that_do_not_fit_the_outputs_or_inputs(
    tmp_path: Path, zoo: ZooFolder, changed: dict[str, str], what: str
) -> None:
    text = "import keras\nfrom keras import layers\n"
    text += "\n".join({**BASE, **OUTPUTS, **changed}.values())
    with pytest.raises(EdlError) as caught:
        load(zoo, write_rows(tmp_path / "data.recordio"), text)
    assert what in caught.value.what
    assert "mine.py:" in caught.value.where
    assert caught.value.remedy


@pytest.mark.parametrize(("part", "source", "remedy"), CASES)
def test_a_mistake_has_a_place_and_a_remedy(
    tmp_path: Path, zoo: ZooFolder, part: str, source: str, remedy: str
) -> None:
    text = "import keras\nfrom keras import layers\n"
    text += "\n".join({**BASE, part: source}.values())
    with pytest.raises(EdlError) as caught:
        load(zoo, write_rows(tmp_path / "data.recordio"), text)
    assert remedy in caught.value.remedy
    assert "mine.py:" in caught.value.where
    assert "more)" not in caught.value.what


def test_the_model_file_without_a_mistake(tmp_path: Path, zoo: ZooFolder) -> None:
    text = "import keras\nfrom keras import layers\n" + "\n".join(BASE.values())
    assert not load(zoo, write_rows(tmp_path / "data.recordio"), text).engine.summarize().warnings


def test_metrics_of_probabilities_that_get_logits(tmp_path: Path, zoo: ZooFolder) -> None:
    binary = {
        "parse": PARSE.replace('tf.cast(r["x"][0] * 3, tf.int64)', "0.0"),
        "model": MODEL.replace("Dense(3)", "Dense(1)"),
        "loss": "loss = keras.losses.BinaryCrossentropy(from_logits=True)\n",
        "more": "metrics = ['accuracy', keras.metrics.AUC()]",
    }
    text = "import keras\nfrom keras import layers\n" + "\n".join({**BASE, **binary}.values())
    loaded = load(zoo, write_rows(tmp_path / "data.recordio"), text)
    first, second = loaded.engine.summarize().warnings
    assert "the metric accuracy takes probabilities" in first
    assert second.endswith("use keras.metrics.AUC(from_logits=True)")


def test_an_argument_that_keras_ignores(tmp_path: Path, zoo: ZooFolder) -> None:
    optimizer = "optimizer = keras.optimizers.SGD(0.1, decay=1e-6)\n"
    text = "import keras\nfrom keras import layers\n"
    text += "\n".join({**BASE, "optimizer": optimizer}.values())
    loaded = load(zoo, write_rows(tmp_path / "data.recordio"), text)
    (warning,) = loaded.engine.summarize().warnings
    place, _, what = warning.partition(": ")
    lines = (tmp_path / "mine.py").read_text().splitlines()
    assert "decay" in lines[int(place.rpartition(":")[2]) - 1]
    assert what == "Argument `decay` is no longer supported and will be ignored."


def test_features_that_a_subclassed_model_does_not_take(tmp_path: Path, zoo: ZooFolder) -> None:
    wrong = {
        "parse": PARSE.replace(
            'return r["x"], tf.cast(r["x"][0] * 3, tf.int64)',
            "return (r['x'], r['x']), [0.0]",
        ),
        "model": NET + "model = Net()\n",
    }
    text = "import keras\nfrom keras import layers\n" + "\n".join({**BASE, **wrong}.values())
    with pytest.raises(EdlError) as caught:
        load(zoo, write_rows(tmp_path / "data.recordio"), text)
    assert "takes what the input function yields as labels" not in caught.value.what
