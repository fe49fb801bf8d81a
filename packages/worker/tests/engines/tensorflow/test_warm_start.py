"""A new model begins with those values of another one that fit it, and says which do not."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow import warm_start, weights
from edl_worker.engines.tensorflow.embedding.layer import Embedding
from edl_worker.engines.tensorflow.embedding.lookup_stages import LayerPurpose, layers_for
from edl_worker.trained_model import weight_files

FORMS = ("parameters.safetensors", "model.keras", "model.weights.h5")


def network(*, outputs: int, extra: bool = False, body: str = "body") -> keras.Model:
    point = keras.Input((3,))
    hidden = keras.layers.Dense(4, name=body, bias_initializer="ones")(point)
    if extra:
        hidden = keras.layers.Dense(4, name="extra")(hidden)
    return keras.Model(point, keras.layers.Dense(outputs, name="head")(hidden))


def save(model: keras.Model, path: Path) -> Path:
    if path.suffix == ".safetensors":
        weight_files.save(weights.of_model(model), path)
    elif path.suffix == ".keras":
        model.save(path)
    else:
        model.save_weights(path)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_values_of_the_same_model_all_fit(form: str, tmp_path: Path) -> None:
    trained, new = network(outputs=2), network(outputs=2)
    assert warm_start.initialize(new, str(save(trained, tmp_path / form))) == ()
    for mine, theirs in zip(new.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_what_does_not_fit_begins_anew_and_is_named(form: str, tmp_path: Path) -> None:
    trained, new = network(outputs=2), network(outputs=5, extra=True)
    before = weights.of_model(new)
    path = save(trained, tmp_path / form)
    texts = warm_start.initialize(new, str(path))
    assert texts[0].startswith(f"2 of 6 variables begin with values of --init-from {path}, ")
    for name in ("extra/kernel", "extra/bias", "head/kernel", "head/bias"):
        assert name in texts[0]
        np.testing.assert_array_equal(weights.of_model(new)[name], before[name])
    assert "body" not in texts[0]
    for name in ("body/kernel", "body/bias"):
        np.testing.assert_array_equal(weights.of_model(new)[name], weights.of_model(trained)[name])
    if path.suffix == ".safetensors":
        assert "head/kernel (4, 5), there (4, 2)" in texts[0]
        assert texts[1:] == (f"Not used of --init-from {path}: head/kernel; head/bias.",)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_which_nothing_fits_is_refused(form: str, tmp_path: Path) -> None:
    path = save(network(outputs=2), tmp_path / form)
    point = keras.Input((7,))
    other = keras.Model(point, keras.layers.Dense(9, name="other")(point))
    with pytest.raises(EdlError) as caught:
        warm_start.initialize(other, str(path))
    assert caught.value.code == ErrorCode.SHAPE_MISMATCH


def test_tables_fit_by_their_names(tmp_path: Path) -> None:
    def tables(*names: str) -> keras.Model:
        ids = keras.Input((2,), dtype="int64")
        found = [keras.layers.Flatten()(Embedding(3, name=name)(ids)) for name in names]
        joined = keras.layers.Concatenate()(found) if len(found) > 1 else found[0]
        return keras.Model(ids, keras.layers.Dense(1, name="head")(joined))

    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    stored = {
        "old/table_ids": np.array([4, 9]),
        "old/table_rows": rows,
        "old/table_seed": np.array(1),
    }
    path = tmp_path / "v.safetensors"
    weight_files.save(stored, path)
    with layers_for(LayerPurpose.TRAINING):
        model = tables("old", "new")
        (text,) = warm_start.initialize(model, str(path))
    assert "new/table_rows" in text
    assert "old" not in text
    layers = {layer.name: layer for layer in weights.embedding_layers(model)}
    assert layers["old"].initial_table is not None
    np.testing.assert_array_equal(layers["old"].initial_table[1], rows)
    assert layers["new"].initial_table is None
