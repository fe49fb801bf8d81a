"""What people often get wrong in a model file has a remedy of its own."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.error_messages import message_of
from edl_worker.model_file.errors import user_code_error
from edl_worker.model_file.forms.model_definition import similar_name
from edl_worker.model_file.known_errors import explain
from edl_worker.model_file.known_names import did_you_mean


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("'SymbolicTensor' object has no attribute 'numpy'", "tf.py_function"),
        ("Iterating over a symbolic `tf.Tensor` is not allowed", "tf.cond"),
        ("Using a symbolic `tf.Tensor` as a Python `bool` is not allowed", "tf.cond"),
        ("'z' must also be initialized in the else branch", "Give z a value before the if"),
        ("tf.function only supports singleton tf.Variables created on", "once, in __init__"),
        ("You cannot add new elements of state (variables or sub-layers)", "once, in __init__"),
        ("Argument could not be lifted out of a `tf.function`", "once, in __init__"),
        ("Received: <tf_keras.src.layers.core.dense.Dense object>", "tf_keras (Keras 2)"),
        ("A KerasTensor cannot be used as input to a TensorFlow function", "keras.ops"),
        ("`keras.optimizers.legacy` is not supported in Keras 3; tf_keras", "same name"),
        ("EOF when reading a line", "no keyboard"),
        ("types [float32, <NOT CONVERTIBLE TO TENSOR>] that don't all match", "tf.sparse.to_dense"),
        ("Cannot convert '64' to a shape.", "keras.Input((64,))"),
        ("relu() missing 1 required positional argument: 'x'", 'activation="relu"'),
        ("f() missing 1 required positional argument: 'y'", "Give 'y' to f()"),
        (
            "Only input tensors may be passed as positional arguments. The following argument "
            "value should be passed as a keyword argument: <Dense name=dense, built=False>",
            "keras.layers.Dense(...)(x)",
        ),
        ("URL fetch failure on https://weights", "Put the file into the model zoo"),
        ("File not found: filepath=pre.keras.", "Path(__file__).with_name"),
        ("open file: name = 'a.h5', error message = 'No such file or directory'", "whole path"),
        (
            "`name` must be a keyword. Use: add_weight(shape=..., name='kernel').",
            "add_weight(shape",
        ),
        ("In layer 'L', you forgot to call `super().__init__()` as the first", "Begin __init__"),
        ("The output of the `schedule` function should be a float. Got: None", "return lr"),
        ("Layer count mismatch when loading weights from file.", ".weights.h5"),
        ("not enough values to unpack (expected 3, got 2)", "each entry of record_defaults"),
        ("`x` and `y` must have the same dtype, got tf.int32 != tf.float32.", "tf.cast(x, tf.flo"),
        ("`x` and `y` must have the same dtype, got tf.string != tf.float32.", "tf.io.decode_png"),
        ("Op has type string that does not match type float32", "tf.strings.to_number"),
        ("Field 1 is required but missing in record 0!", "Give column 1"),
        ("Unquoted fields cannot have quotes/CRLFs inside", "tf.io.parse_single_example("),
        ("Could not parse example input, value: 'a'", "tf.io.decode_raw"),
        ("'SymbolicTensor' object has no attribute 'split'", "tf.io.decode_csv"),
        ("Table not initialized.", "layer.adapt(texts)"),
        ("'record_defaults' of 'DecodeCSV' Op have types [<NOT CONVERTIBLE TO TENSOR>]", "[0.0]"),
        (
            "Key: x.  Data types don't match. Data type: float but expected type: int64",
            "tf.float32",
        ),
        ("Key: x.  Can't parse serialized Example: Some float_list slice", "the shape that x has"),
        ("division by zero", None),
    ],
)
def test_messages_that_have_a_remedy_of_their_own(message: str, remedy: str | None) -> None:
    found = explain(ValueError(message), message)
    assert (found is None) if remedy is None else (found is not None and remedy in found.remedy)


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("tf.placeholder(tf.float32)", "keras.Input"),
        ("tf.config.list_physical_devices('none')[0]", "no such device"),
        ("argparse.ArgumentParser().parse_args(['--x'])", "--params"),
    ],
)
def test_lines_that_no_job_can_run(source: str, remedy: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import argparse, tensorflow as tf\n{source}\n")
    with pytest.raises((AttributeError, IndexError, SystemExit)) as raised:
        runpy.run_path(str(file))
    found = explain(raised.value, str(raised.value))
    assert found is not None
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("cell", "remedy"),
    [
        ("True", "tf.cast(x == 'True', tf.float32)"),
        ("198,770", "remove the thousands separators"),
        ("3,14", "replace the decimal comma"),
        ("2024-01-05", 'tf.strings.split(x, "-")'),
        ("05/01/2024", 'tf.strings.split(x, "/")'),
        ("N/A", "Leave such cells of column 3"),
        ("$12.50", "keep its number, 12.50"),
        ("85%", "keep its number, 85"),
        ("Berlin", "StringLookup"),
    ],
)
def test_a_cell_that_is_no_number(cell: str, remedy: str) -> None:
    message = f"Field 3 in record 0 is not a valid float: {cell}"
    found = explain(ValueError(message), message)
    assert found is not None
    assert "column 3" in found.remedy
    assert remedy in found.remedy


def test_a_fraction_in_a_column_of_whole_numbers() -> None:
    message = "Field 0 in record 0 is not a valid int32: 5.1"
    found = explain(ValueError(message), message)
    assert found is not None
    assert "default 0.0" in found.remedy


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("from keras.preprocessing.text import Tokenizer", "TextVectorization"),
        ("from keras.layers.core import Dense, Dropout", "keras.layers.Dense"),
        ("from keras.utils import np_utils", "keras.utils.to_categorical"),
        ("import keras.engine", "Import what replaced it: keras 3."),
        ("from keras.layers import Adam", "keras.optimizers.Adam"),
        ("keras.backend.sum(1)", "keras.ops.sum"),
        ("tf.reduce_men(1)", "Did you mean reduce_mean"),
        ("tf.enable_eager_execution()", "computes at once"),
        ("keras.mixed_precision.experimental.set_policy('float16')", "Leave experimental out"),
        ("keras.Model(input=keras.Input((2,)))", "keras.Model(inputs=..., outputs=...)"),
        ("keras.Model(keras.Input((2,)))", "keras.Model(inputs, outputs)"),
        ("keras.Model().add(1)", "x = layer(x)"),
        ("keras.Sequential([keras.layers.Dense(2, name='a')]).get_layer('aa')", "Use one of a."),
        ("keras.layers.Dense(2, bias_initializer=0.1)", "Constant(0.1)"),
        ("keras.Input((2,), dtype='str')", '"string"'),
        ("x = keras.Input((2,))\ny = x if x > 0 else -x", "keras.ops.where"),
        ("keras.Input((2,))[0] = 1", "keras.ops.where"),
        ("import os\nos.environ['UNITS']", "def build_model(units=8)"),
        ("open('words.txt')", "pathlib.Path(__file__)"),
        ("layer = None\nlayer.units", "layer is None"),
        ("raise ValueError('no data')", "raises this itself"),
        ("sizes = [8]\nsizes[1]", "Correct `sizes[1]`; there, sizes is [8]."),
        ("count = '8'\ncount + 3", "there, count is '8'."),
    ],
)
def test_names_that_keras_has_elsewhere(line: str, remedy: str, zoo: ZooFolder) -> None:
    zoo.write("mine.py", f"import keras\n{line}\n")
    with pytest.raises(EdlError) as raised:
        zoo.load("mine")
    assert remedy in raised.value.remedy


class Unfinished(keras.layers.Layer):
    def __init__(self) -> None:
        self.dense = keras.layers.Dense(3)


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: tf.constant("a,b").split(","), "tf.io.decode_csv"),
        (lambda: tf.constant(1).astype("float32"), "tf.cast(x, dtype)"),
        (lambda: keras.Sequential([keras.Input((2,)), Unfinished()]), "super().__init__()"),
        (lambda: Unfinished()(tf.zeros([1, 2])), "super().__init__()"),
        (lambda: keras.layers.Conv2D(3, 3, padding="smae"), "Did you mean same?"),
        (lambda: keras.layers.TextVectorization(output_mode="tfidf"), "Did you mean tf_idf?"),
        (lambda: keras.dtype_policies.get("mixed_fp16"), "Did you mean mixed_float16"),
    ],
)
def test_wrong_names_and_unfinished_layers(call: Callable[[], Any], remedy: str) -> None:
    with pytest.raises((AttributeError, RuntimeError, ValueError)) as raised:
        call()
    found = explain(raised.value, message_of(raised.value))
    assert found is not None
    assert remedy in found.remedy


def test_a_saved_model_with_a_class_of_its_own(tmp_path: Path) -> None:
    class Scale(keras.layers.Layer):
        def call(self, values: Any) -> Any:
            return values * 2.0

    file = tmp_path / "base.keras"
    keras.Sequential([keras.Input((2,)), Scale()]).save(file)
    with pytest.raises(TypeError) as raised:
        keras.models.load_model(file)
    found = explain(raised.value, message_of(raised.value))
    assert found is not None
    assert found.message == "the file has a class of its own, Scale"
    assert 'custom_objects={"Scale": Scale}' in found.remedy


def test_a_record_of_raw_bytes_is_no_example() -> None:
    features = {"x": tf.io.FixedLenFeature([], tf.float32)}
    records = tf.data.Dataset.from_tensors(b"\x1f\x8b\xff").map(
        lambda record: tf.io.parse_single_example(record, features)
    )
    with pytest.raises(UnicodeDecodeError) as raised:
        next(iter(records))
    found = explain(raised.value, message_of(raised.value))
    assert found is not None
    assert found.message == "the record is no tf.Example"


LABELS, OUTPUTS = tf.constant([0, 1]), tf.constant([[0.5, 0.5], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: keras.optimizers.Adam(learning_rte=0.1), "Did you mean learning_rate?"),
        (lambda: keras.optimizers.Adam(lr=0.1), "It takes learning_rate, beta_1, beta_2"),
        (lambda: keras.layers.Dense(3, activtion="relu"), "Did you mean activation?"),
        (lambda: keras.Input(64), "keras.Input((64,))"),
        (
            lambda: keras.losses.sparse_categorical_crossentropy(OUTPUTS, LABELS),
            "The labels seem to be given as outputs",
        ),
    ],
)
def test_calls_of_keras_with_wrong_arguments(call: Callable[[], Any], remedy: str) -> None:
    with pytest.raises(ValueError, match=r"rgument|Cannot convert") as raised:
        call()
    found = explain(raised.value, message_of(raised.value))
    assert found is not None
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('return tf.stack([values["x"], values["y"]]), values["label"]', "values['y'] is a sparse"),
        ("row = tf.stack([x, y], axis=-1)", "y is a sparse"),
        ("x, tf.sparse.reorder(y)])", "value 2 of 2 is a sparse"),
        ("", "value 2 of 2 is a sparse"),
    ],
)
def test_a_sparse_value_is_named(line: str, named: str) -> None:
    message = "Op have types [float32, <NOT CONVERTIBLE TO TENSOR>] that don't all match"
    found = explain(TypeError(message), message, line)
    assert found is not None
    assert found.message.startswith(named)


def test_a_sparse_feature_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import tensorflow as tf\n\n\ndef parse(record):\n"
        "    kinds = {'x': tf.io.FixedLenFeature([], tf.float32),\n"
        "             'y': tf.io.VarLenFeature(tf.float32)}\n"
        "    values = tf.io.parse_single_example(record, kinds)\n"
        "    return tf.stack([values['x'], values['y']])\n"
    )
    parse = runpy.run_path(str(file))["parse"]
    with pytest.raises(TypeError) as raised:
        tf.data.Dataset.from_tensors(b"").map(parse)
    found = user_code_error(
        raised.value, tmp_path, code=ErrorCode.USER_CODE, action="a() raised", place="", remedy=""
    )
    assert found.what == "a() raised TypeError: values['y'] is a sparse tensor"
    assert found.where == f"{file}:8, parse"
    assert "tf.sparse.to_dense" in found.remedy


def test_a_misspelled_attribute_and_import() -> None:
    with pytest.raises(AttributeError) as attribute:
        keras.layers.Dens  # noqa: B018  (raises)
    found = explain(attribute.value, str(attribute.value))
    assert found is not None
    assert found.remedy.startswith("Did you mean Dense")
    with pytest.raises(ImportError) as imported:
        exec("from keras.layers import BatchNormalisation")
    found = explain(imported.value, str(imported.value))
    assert found is not None
    assert found.remedy == "Did you mean BatchNormalization?"


@pytest.mark.parametrize(
    ("role", "name", "wanted"),
    [
        ("loss", "loss_fn", "loss"),
        ("loss", "criterion", "loss"),
        ("optimizer", "get_optimiser", "optimizer"),
        ("input", "dataset_func", "dataset_fn"),
        ("input", "make_dataset", "dataset_fn"),
        ("eval_metrics_fn", "eval_metric_fn", "eval_metrics_fn"),
        ("eval_metrics_fn", "metric", "metrics"),
        ("callbacks", "callback_list", "callbacks"),
        ("class_weight", "class_weights", "class_weight"),
        ("loss", "model", None),
        ("callbacks", "learning_rate", None),
    ],
)
def test_a_name_like_one_that_edl_looks_for(role: str, name: str, wanted: str | None) -> None:
    assert similar_name(role, name) == wanted  # type: ignore[arg-type]  # plain texts are shorter


def test_suggestions_keep_the_case_of_the_known_name() -> None:
    assert did_you_mean("adm", ["Adam", "SGD"]) == "Did you mean Adam?"
    assert did_you_mean("zebra", ["Adam", "SGD"]) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), ErrorCode.SYSTEM),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), ErrorCode.SYSTEM),
        (tf.errors.ResourceExhaustedError(None, None, "No space left"), ErrorCode.USER_CODE),
        (ValueError("of a shape"), ErrorCode.USER_CODE),
    ],
)
def test_a_lack_of_memory_is_no_error_of_the_model_file(
    error: Exception, code: ErrorCode.ValueType
) -> None:
    given = {"action": "loss raised", "place": "here", "remedy": "Correct it."}
    found = user_code_error(error, Path("/zoo"), code=ErrorCode.USER_CODE, **given)
    assert found.code == code
    assert ("--worker-resources memory=8Gi" in found.remedy) == (code == ErrorCode.SYSTEM)


def test_a_number_in_quotes() -> None:
    found = explain(TypeError(), "Expected float32, but got 1 of type 'str'.")
    assert found is not None
    assert found.remedy == "Write the number 1 without quotes."
