"""Remedies for what people often get wrong in a model file, by the message of the exception."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

from edl_worker.model_file import keras_2, known_names
from edl_worker.model_file.error_messages import text_of
from edl_worker.model_file.explanation import Explanation
from edl_worker.model_file.known_lines import OWN_FOLDER, explain_line
from edl_worker.model_file.known_parsing_errors import explain_parsing

_NO_VALUES = (
    "The function is traced, so its tensors have no values yet. Use operations of TensorFlow here; "
    "tf.py_function(f, [x], dtype) runs Python code."
)
_CREATE_ONCE = (
    "Create layers and variables once, in __init__ or build (self.dense = keras.layers.Dense(8)), "
    "and only call them in call. Those of a dataset function belong at the top of the file."
)
_UNKNOWN_OBJECT = re.compile(r"Could not locate (class|function) '(\w+)'")
_REGISTER = (
    "Define or import {0} in the model file, and decorate it with "
    "@keras.saving.register_keras_serializable(), or load the file with "
    'custom_objects={{"{0}": {0}}}.'
)
_MADE_LOSS = re.compile(r"\blosses\.([A-Z]\w+)\(\w+, \w+\)")

BEYOND_TABLE = re.compile(r"indices(?:\[([\d, ]+)\])? = (-?\d+) is not in \[0, (\d+)\)")
"""The message for an id without a row: where it is in the ids, the id, and the number of rows."""
CATEGORIES = "categories"
"""How lookups are called that only check categories, before the name of the layer."""
_LOOKUP_NODE = re.compile(r"\b([\w/.]+)/(?:Resource)?Gather\w*")

_CATEGORY_NODE = re.compile(rf"\b{CATEGORIES}\.([\w-]+)\.")

# Pattern of a message, and what it means; {0} is the first group of the pattern.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"no attribute '(numpy|item|tolist)'|numpy\(\) is only available", _NO_VALUES, ""),
    (
        r"(?:Mean|Sum)\.update_state\(\) got multiple values",
        "keras.metrics.Mean and Sum take one value and compare no labels: use MeanAbsoluteError or "
        "another metric of labels, or a function of (labels, predictions).",
        "",
    ),
    (
        r"missing a required argument: '(\w+)'",
        "Give it a value for {0}. The call of a model gets the features: yield a dictionary with "
        "{0}, or give the parameter a default.",
        "",
    ),
    (
        r"symbolic KerasTensor",
        "The output of a layer has no values while the model is made, so Python's if, for and "
        "comparisons cannot use it: write keras.ops.where(x > 0, a, b) and operations on whole "
        "tensors.",
        "",
    ),
    (
        r"Tensor' object does not support item assignment|'ResourceVariable' object does not sup",
        "A tensor does not change: make another one with keras.ops.where, "
        "keras.ops.slice_update or tf.tensor_scatter_nd_update.",
        "",
    ),
    (
        r"Layer\.__init__\(\) takes 1 positional argument",
        "Write keras.Model(inputs, outputs). In __init__ of a class of your own, pass names only: "
        "super().__init__(**kwargs).",
        "",
    ),
    (
        r"__init__\(\) takes .* positional arguments? but (\d+) were given",
        "Write the arguments with their names, name=value: it takes fewer without names.",
        "",
    ),
    (
        r"Invalid dtype: (\S+)",
        'Use a dtype such as "float32", "int64", "bool" or "string" (for texts), and not {0}.',
        "",
    ),
    (
        r"Iterating over a symbolic|Using a symbolic `?tf.Tensor`? as a Python `?bool"
        r"|condition of (?:if|while) statement expected to be",
        "The function is traced, so its tensors have no values for Python's if, while and for. "
        "Use tf.cond, tf.where and operations on whole tensors.",
        "",
    ),
    (
        r"'(\w+)' must also be initialized in the (?:else|main) branch",
        "Give {0} a value before the if, or in both branches: it depends on a tensor.",
        "",
    ),
    (
        r"only supports singleton tf.Variables|create variables on a non-first call"
        r"|cannot add new elements of state|could not be lifted out of a `tf.function`",
        _CREATE_ONCE,
        "creates a layer or variable, which would be a new one on each call",
    ),
    (
        r"A KerasTensor (?:cannot be used as input to a TensorFlow|is symbolic)",
        "Use functions of keras.ops on outputs of layers, or call TensorFlow in the call method of "
        "a layer of your own.",
        "",
    ),
    (
        r"keras\.optimizers\.legacy",
        "Take the optimizer of the same name from keras.optimizers.",
        "",
    ),
    (
        r"legacy SavedModel format is not supported",
        "Keras cannot train a SavedModel. Save the model once as one of Keras where it was made, "
        'model.save("model.keras"), and load that file; or build it here, and load its weights.',
        "",
    ),
    (r"tf_keras", keras_2.REMEDY, ""),
    (
        r"EOF when reading a line",
        "A job has no keyboard. Make the value a parameter of a function, such as "
        "def optimizer(learning_rate=0.01); --params sets it.",
        "",
    ),
    (
        r"can be added to a Sequential model",
        "Give keras.Sequential one list of layers, such as [keras.Input((2,)), "
        "keras.layers.Dense(3)]. A class becomes a layer by a call, Flatten(), and a function by "
        "keras.layers.Lambda(function).",
        "",
    ),
    (
        r"Cannot convert a symbolic tf.Tensor|not '?(?:SymbolicTensor|Tensor|KerasTensor)'?$",
        _NO_VALUES,
        "",
    ),
    (
        r"has type (\w+) that does not match type (\w+)",
        "Give both one type, for example tf.cast(x, tf.float32): one is {0}, the other {1}.",
        "",
    ),
    (
        r"is incompatible with the layer: expected (?:min_)?ndim=(\d), found ndim=(\d)",
        "Let the layer get {0} dimensions with that of the examples, and not {1}: look at the "
        "keras.Input (an image is (height, width, channels), a series (steps, features)), or add a "
        "Reshape or Flatten before it.",
        "",
    ),
    (
        r"not connected to `inputs`|Graph disconnected",
        "Write keras.Model(inputs, outputs), the inputs first; each output must be computed from "
        "these inputs by layers.",
        "",
    ),
    (
        r"`outputs` values must be KerasTensors",
        "Call the layer with its input: keras.layers.Dense(3)(x) instead of keras.layers.Dense(3).",
        "",
    ),
    (
        r"Expected \w+, but got (\S+) of type 'str'",
        "Write the number {0} without quotes.",
        "",
    ),
    (
        r"Cannot convert '\(\((?:None|\d+),.*to a shape",
        "If the layer is one of Keras, its input is a tuple: remove the comma at the end of the "
        "line that made it. In build() of a layer of yours, input_shape is the whole shape, with "
        "the dimension of the examples: take a part of it, shape=(input_shape[-1], units).",
        "",
    ),
    (
        r"`learning_rate` should be float",
        "Write a number, learning_rate=0.01: no text, and no variables of the model.",
        "",
    ),
    (
        r"^(\w+)\(\) missing 1 required positional argument: 'x'",
        'Give an activation by its name, activation="{0}", or as a function that is not called, '
        "keras.activations.{0}. Other functions need a value for x.",
        "",
    ),
    (
        r"takes (\d+) positional arguments? but (\d+) (?:was|were) given",
        "It is called with {1} arguments, and takes {0}. .map and .filter give a function each "
        "part of an example: lambda features, label: ...; a metric or loss gets (labels, "
        "predictions).",
        "",
    ),
    (
        r"^(?!.*__init__)(\w+)\(\) missing \d+ required positional arguments?: (.*)$",
        "Give {1} to {0}(), or a default. If you pass the function itself, leave the brackets out: "
        ".map(parse). It gets as many arguments as an example has parts: a record is one.",
        "",
    ),
    (r"missing \d+ required positional arguments?: (.*)$", "Give it a value for {0}.", ""),
    (
        r"got multiple values for argument '(\w+)'",
        "Name all arguments: {0} is also the first one without a name.",
        "",
    ),
    (
        r"`inputs` values must be KerasTensors",
        "Begin the model with keras.Input(shape): its inputs are no values.",
        "",
    ),
    (
        r"Only input tensors may be passed as positional arguments.*<(\w+) name=",
        "Call the layer with its input: keras.layers.{0}(...)(x) instead of keras.layers.{0}(...).",
        "gives a layer to a layer, and not the output of one",
    ),
    (
        r"URL fetch failure on",
        "Put the file into the model zoo and name it, such as "
        'weights=pathlib.Path(__file__).with_name("weights.h5"): workers need not have a network.',
        "",
    ),
    (
        r"Cannot convert '(\d+)' to a shape",
        "A shape is a tuple, which needs a comma: keras.Input(({0},)).",
        "",
    ),
    (
        r"target\.shape=\([^)]*\d\), output\.shape=\(\w+,(?: 1)?\)"
        r"|labels\.shape=\([^)]*\d\) of rank 2 and logits\.shape=\(\w+,",
        "The labels seem to be given as outputs, and the outputs as labels. Write the labels first "
        "in the function, def loss(labels, predictions), and where it calls losses of Keras.",
        "",
    ),
    (
        r"output of the `schedule` function should be a float",
        "End each path of the schedule with return and a rate, such as return lr.",
        "",
    ),
    (r"Use: (\w+\(.*\))", "Write {0}.", ""),
    (
        r"forgot to call `super\(\)\.__init__\(\)`",
        known_names.INIT_FIRST,
        "",
    ),
    (
        r"Layer count mismatch when loading",
        "Make the model as the one whose weights were saved. Files of save_weights() have names "
        "that end in .weights.h5: Keras reads an .h5 with another name as one of Keras 2.",
        "",
    ),
    (
        r"inhomogeneous shape",
        "Give each record the same number of values: pad the lists, or use tf.ragged.constant.",
        "",
    ),
    (
        r"No such file or directory|File not found: filepath=",
        OWN_FOLDER,
        "",
    ),
)


_SCRIPT = (
    "A job loads the file as a module: it has no arguments, and must not exit. Make values "
    "parameters of functions, such as def optimizer(learning_rate=0.01), which --params sets; put "
    'what a script does under if __name__ == "__main__":.'
)
_DEVICES = (
    "This machine shows no such device. Leave the lines out: TensorFlow uses the devices that a "
    "worker has, and trains on processors where it has no GPU."
)


def explain(error: BaseException, message: str, line: str = "") -> Explanation | None:
    """Return what an exception means, if it is a known one.

    Args:
        message: of the exception, as users see it.
        line: of the model file that raised it.
    """
    if (special := _explain_by_form(error, message, line)) is not None:
        return special
    if (method := known_names.find_method(error, message)) is not None:
        return Explanation(method)
    for pattern, remedy, meaning in _KNOWN:
        match = re.search(pattern, message)
        if match is not None:
            groups = [each or "" for each in match.groups()]
            return Explanation(remedy.format(*groups) if groups else remedy, meaning)
    for find in _FINDERS:
        if (near := find(error, message)) is not None:
            return Explanation(near)
    return None


def _explain_by_form(error: BaseException, message: str, line: str) -> Explanation | None:
    """Return what an exception means of which more than the message tells that."""
    if (of_line := explain_line(error, message, line)) is not None:
        return of_line
    if mixed := keras_2.find_mixture(error):
        return Explanation(keras_2.REMEDY, message=f"{mixed} does not work with Keras 3")
    if (parsing := explain_parsing(error, message, line)) is not None:
        return parsing
    if (unknown := _UNKNOWN_OBJECT.search(text_of(error))) is not None:
        kind, name = unknown.groups()
        return Explanation(
            _REGISTER.format(name), message=f"the file has a {kind} of its own, {name}"
        )
    if (match := BEYOND_TABLE.search(message)) is not None:
        known_id, rows = int(match.group(2)), int(match.group(3))
        remedy = enough_rows(known_id, error)
        return Explanation(remedy, message=_name_table(error, known_id, rows))
    if "symbolic" in message and (made := _MADE_LOSS.search(line)) is not None:
        what = f"the class {made.group(1)} gets the labels as its settings"
        return Explanation(call_of_loss(made.group(1)), message=what)
    return None


def enough_rows(greatest: int, error: BaseException) -> str:
    """Return what to do about ids without a row, of which this is the greatest that is known.

    Args:
        error: that of the lookup, which says what has no row.
    """
    if _CATEGORY_NODE.search(str(error)):
        return (
            f"Give CategoryEncoding num_tokens={max(greatest, 0) + 1} or more, and numbers from 0 "
            "on; an IntegerLookup before it takes any numbers."
        )
    if greatest < 0:
        return "Make the input function yield ids from 0 on, for missing values, too."
    return (
        f"Give the layer input_dim={greatest + 1} or more (keras.layers.Embedding(input_dim, "
        "output_dim)): it must be greater than every id of the data. Or map the ids to fewer."
    )


def _name_table(error: BaseException, known_id: int, rows: int) -> str:
    """Return which table has no row for an id; only a graph's error has the layer's name."""
    if category := _CATEGORY_NODE.search(str(error)):
        return f"{category.group(1)} takes the categories 0 to {rows - 1}, and got {known_id}"
    node = _LOOKUP_NODE.search(str(error))
    table = f"the embedding {node.group(1)}" if node else "an embedding (or tf.gather)"
    return f"{table} has {rows} rows, for the ids 0 to {rows - 1}, and got the id {known_id}"


def call_of_loss(kind: str) -> str:
    """Return what to do about a function that makes a loss of labels, instead of calling it."""
    return f"Call the loss that the class makes: keras.losses.{kind}()(labels, predictions)."


def _find_exit(error: BaseException, message: str) -> str | None:
    """Return what to do about a file that ends the process, as argparse does."""
    return _SCRIPT if isinstance(error, SystemExit) else None


def _find_device(error: BaseException, message: str) -> str | None:
    """Return what to do about a line that takes a device from an empty list."""
    frames = traceback.extract_tb(error.__traceback__)
    is_device = bool(frames) and "_devices(" in (frames[-1].line or "")
    return _DEVICES if isinstance(error, IndexError) and is_device else None


_FINDERS: tuple[Callable[[BaseException, str], str | None], ...] = (
    *known_names.FINDERS,
    *(_find_exit, _find_device),
)
