"""Models for LiteRT and ONNX compute what Keras computes, or are refused before training."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.step_engine import ExportForm
from edl_worker.engines.tensorflow.export_forms import export_forms
from edl_worker.engines.tensorflow.model import load_model_file
from edl_worker.trained_model import directory

SOURCE = """
import keras

{model}

def dataset_fn(dataset, mode):
    return dataset

loss, optimizer = "mse", "sgd"
"""
IMAGES_AND_CLASSES = """
image = keras.Input((8, 8, 1), name="image")
kind = keras.Input((1,), name="class", dtype="int32")
x = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(image)
x = keras.layers.MaxPooling2D()(keras.layers.BatchNormalization()(x))
x = keras.layers.Dropout(0.5)(keras.layers.Flatten()(x))
known = keras.layers.Flatten()(keras.layers.Embedding(7, 3)(kind))
x = keras.layers.Concatenate()([x, known])
outputs = {"digit": keras.layers.Dense(3, activation="softmax", name="digit")(x),
           "size": keras.layers.Dense(1, name="size")(x)}
model = keras.Model({"image": image, "class": kind}, outputs)
"""
SEQUENCE = """
steps = keras.Input((5, 2), name="steps")
x = keras.layers.LayerNormalization()(keras.layers.GRU(4, return_sequences=True)(steps))
x = x + keras.layers.MultiHeadAttention(2, 4)(x, x)
model = keras.Model(steps, keras.layers.Dense(1, name="next")(keras.layers.LSTM(3)(x)))
"""
HASHES = """
word = keras.Input((1,), name="word", dtype="string")
x = keras.layers.Hashing(20, output_mode="one_hot")(word)
model = keras.Model(word, keras.layers.Dense(1)(x))
"""
rng = np.random.default_rng(0)
Features = Mapping[str, np.ndarray[Any, Any]]
Forms = Callable[..., tuple[keras.Model, dict[str, ExportForm]]]


@pytest.fixture
def forms(zoo: ZooFolder) -> Forms:
    def load(model: str, spec: Any) -> tuple[keras.Model, dict[str, ExportForm]]:
        zoo.write("mine.py", SOURCE.format(model=model))
        file = load_model_file(zoo.reference("mine"), seed=7)
        found = export_forms(file, spec, formats=("litert", "onnx"))
        return file.model, {form.file: form for form in found}

    return load


def run_onnx(path: Path, features: Features) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(path))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(features)), strict=True))


def run_litert(path: Path, features: Features) -> dict[str, Any]:
    with warnings.catch_warnings():  # the class is in another package soon
        warnings.simplefilter("ignore")
        runner = tf.lite.Interpreter(str(path)).get_signature_runner("serve")
    computed: dict[str, Any] = runner(**features)
    return computed


@pytest.mark.parametrize(
    ("file", "run"), [(directory.LITERT, run_litert), (directory.ONNX, run_onnx)]
)
def test_several_inputs_and_outputs_keep_their_names(
    forms: Forms, tmp_path: Path, file: str, run: Callable[[Path, Features], dict[str, Any]]
) -> None:
    spec = {
        "image": tf.TensorSpec((None, 8, 8, 1), tf.float32),
        "class": tf.TensorSpec((None, 1), tf.int32),
    }
    model, found = forms(IMAGES_AND_CLASSES, spec)
    found[file].save(tmp_path / file)
    image = rng.normal(size=(6, 8, 8, 1)).astype(np.float32)
    kind = rng.integers(0, 7, size=(6, 1)).astype(np.int32)
    computed = run(tmp_path / file, {"image": image, "class_": kind})
    assert computed.keys() == {"digit", "size"}
    for name, expected in model({"image": image, "class": kind}).items():
        np.testing.assert_allclose(computed[name], expected, atol=1e-5)


def test_recurrent_layers_and_attention_are_the_same_in_onnx(forms: Forms, tmp_path: Path) -> None:
    model, found = forms(SEQUENCE, tf.TensorSpec((None, 5, 2), tf.float32))
    found[directory.ONNX].save(tmp_path / "model.onnx")
    steps = rng.normal(size=(4, 5, 2)).astype(np.float32)
    (computed,) = run_onnx(tmp_path / "model.onnx", {"features": steps}).values()
    np.testing.assert_allclose(computed, model(steps), atol=1e-5)


@pytest.mark.parametrize("file", [directory.LITERT, directory.ONNX])
def test_a_model_that_the_runtime_cannot_run_is_refused(forms: Forms, file: str) -> None:
    _, found = forms(HASHES, tf.TensorSpec((None, 1), tf.string))
    found[file].check(False)
    with pytest.raises(EdlError) as error:
        found[file].check(True)
    assert error.value.code is ErrorCode.MODEL_CONTRACT
    assert "operations that the runtime does not know" in error.value.what
    assert "StringToHashBucketFast" in error.value.what
    assert error.value.where in ("--export litert", "--export onnx")


def test_a_missing_converter_is_named_at_once(
    forms: Forms, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = forms(SEQUENCE, tf.TensorSpec((None, 5, 2), tf.float32))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EdlError, match=r"tf2onnx.* is not installed") as error:
        found[directory.ONNX].check(False)
    assert "requirements.txt" in error.value.remedy
    found[directory.LITERT].check(False)
