"""Maps the features of a minibatch to the inputs of a model: by name, by position, or unchanged."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Literal

import keras
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.internals import consumers
from edl_worker.engines.tensorflow.pipelines.columns import Column

_NUMBERS = (
    "Yield numbers: tf.strings.to_number(x), or the numbers of a StringLookup; or write "
    'keras.Input(..., dtype="string") for texts.'
)
_OF_TEXTS = (keras.layers.TextVectorization, keras.layers.StringLookup, keras.layers.Hashing)
_TEXTS = "Yield texts, such as tf.strings.as_string(x), or give the input a type of numbers."


class TypeMismatch(EdlError):
    """A feature of texts for an input of numbers, or the reverse."""


class FeatureLayout(Enum):
    """The form in which the ``call`` of a subclassed model takes its features."""

    UNCHANGED = auto()  # the tensor or nest of tensors
    SINGLE = auto()  # the only tensor of a dictionary
    LIST = auto()  # the tensors of a dictionary, in order
    ARGUMENTS = auto()  # one argument per feature


class FeatureMapper:
    """A mapping of a minibatch's features to the arguments of a model.

    Args:
        columns: the feature columns if the model file has them; column i feeds input i.
        place: file, line and name of the model, for errors.
    """

    def __init__(self, model: keras.Model, columns: Sequence[Column] | None, place: str) -> None:
        self._model = model
        self._keys = [column.key for column in columns] if columns is not None else None
        self._place = place
        self._layout: FeatureLayout | None = None

    @property
    def inputs(self) -> list[Any]:
        """The symbolic inputs of a functional or sequential model; empty for a subclassed one."""
        try:
            return list(getattr(self._model, "inputs", None) or ())
        except (AttributeError, ValueError):
            return []

    def possible_layouts(self, features: Any) -> list[FeatureLayout]:
        """Return layouts in which the model may take these features, the most likely one first.

        A model with symbolic inputs needs no layout; it gets ``UNCHANGED``, which is not used.
        """
        if self.inputs or not isinstance(features, Mapping):
            return [FeatureLayout.UNCHANGED]
        names = _call_parameters(self._model)
        if len(names) > 1 and all(name in features for name in names):
            return [FeatureLayout.ARGUMENTS]
        use = _use_of_first_parameter(self._model)
        if use == "keys":
            return [FeatureLayout.UNCHANGED]
        if use == "positions":
            return [FeatureLayout.LIST, FeatureLayout.UNCHANGED]
        if len(features) == 1:
            return [FeatureLayout.SINGLE, FeatureLayout.UNCHANGED]
        if self._keys:
            return [FeatureLayout.UNCHANGED, FeatureLayout.LIST]
        return [FeatureLayout.UNCHANGED]

    def use(self, layout: FeatureLayout) -> None:
        """Use this layout for a subclassed model from now on."""
        self._layout = layout

    def __call__(self, features: Any, training: bool) -> Any:
        inputs = self.inputs
        if inputs:
            flat = self._by_input(features, inputs)
            if isinstance(self._model, keras.Sequential):
                return self._model(flat[0], training=training)
            packed = keras.tree.pack_sequence_as(self._model.input, flat)
            return self._model(packed, training=training)
        match self._layout or self.possible_layouts(features)[0]:
            case FeatureLayout.ARGUMENTS:
                names = _call_parameters(self._model)
                return self._model(*(features[name] for name in names), training=training)
            case FeatureLayout.SINGLE:
                (features,) = features.values()
            case FeatureLayout.LIST:
                features = [features[key] for key in self._keys or features]
            case FeatureLayout.UNCHANGED:
                pass
        return self._model(features, training=training)

    def pair(self, features: Any) -> list[tuple[str, Any, Any]]:
        """Return the name and tensor of each feature, and the symbolic input that gets it.

        Raises:
            EdlError: SHAPE_MISMATCH, they have other names or numbers.
        """
        inputs = self.inputs
        named = self._in_order(features, inputs) if inputs else []
        return [(*each, wanted) for each, wanted in zip(named, inputs, strict=True)]

    def _by_input(self, features: Any, inputs: list[Any]) -> list[Any]:
        values = self._in_order(features, inputs)
        return [
            self._fit(name, value, model_input)
            for (name, value), model_input in zip(values, inputs, strict=True)
        ]

    def _in_order(self, features: Any, inputs: list[Any]) -> list[tuple[str, Any]]:
        """Return the name and tensor of each input."""
        names = [model_input.name for model_input in inputs]
        if self._keys is not None and isinstance(features, Mapping):
            if len(self._keys) != len(inputs):
                raise self._mismatch(
                    f"there are {len(self._keys)} feature columns "
                    f"({', '.join(self._keys)}), the model has {len(inputs)} inputs "
                    f"({', '.join(names)})",
                    "Give one feature column per input, in the inputs' order.",
                )
            return [(key, features[key]) for key in self._keys]
        if isinstance(features, Mapping):
            for used in (self._input_keys(inputs), names):
                if used and all(name in features for name in used):
                    return [(name, features[name]) for name in used]
            if len(features) == len(inputs) == 1:
                return list(features.items())
            missing = [name for name in names if name not in features]
            raise self._mismatch(
                f"the model's inputs {', '.join(missing)} are not among the features "
                f"{', '.join(features)}",
                "Give features and inputs the same names: keras.Input(..., name=...).",
            )
        flat = tf.nest.flatten(features)
        if len(flat) != len(inputs):
            raise self._mismatch(
                f"the features are {len(flat)} tensor{'s' * (len(flat) != 1)}, and the model has "
                f"{len(inputs)} input{'s' * (len(inputs) != 1)} ({', '.join(names)})",
                "Yield a dictionary of features with the inputs' names, or a tuple: tf.data makes "
                "one tensor of a list.",
            )
        return list(zip(names, flat, strict=True))

    def _input_keys(self, inputs: list[Any]) -> list[str]:
        """Return the keys under which the model takes its inputs; Keras prefers them to names."""
        given = None if isinstance(self._model, keras.Sequential) else self._model.input
        if not isinstance(given, Mapping):
            return []
        keys = {id(one): str(key) for key, one in given.items()}
        return [keys[id(one)] for one in inputs] if all(id(it) in keys for it in inputs) else []

    def _fit(self, name: str, value: Any, model_input: Any) -> Any:
        """Return the value with the dtype of its input and, if there are columns, its shape."""
        wanted = tuple(model_input.shape[1:])
        if self._keys is not None and None not in wanted:
            found = value.shape[1:]
            if found.is_fully_defined() and tuple(found) != wanted:
                if math.prod(found) != math.prod(wanted):
                    raise self._shape_error(name, found, model_input)
                value = tf.reshape(value, (-1, *wanted))
        elif not _ranks_agree(value.shape, model_input.shape):
            raise self._shape_error(name, value.shape[1:], model_input)
        if (value.dtype == tf.string) != (model_input.dtype == "string"):
            raise TypeMismatch(
                ErrorCode.SHAPE_MISMATCH,
                f"the feature {name} has the type {value.dtype.name}, and the model's input "
                f"{model_input.name} takes {model_input.dtype}",
                where=self._place,
                remedy=_say_type(model_input) if value.dtype == tf.string else _TEXTS,
            )
        numeric = model_input.dtype != "string" and value.dtype != tf.string
        if numeric and isinstance(value, tf.Tensor) and value.dtype.name != model_input.dtype:
            value = tf.cast(value, model_input.dtype)
        return value

    def _shape_error(self, name: str, found: Any, model_input: Any) -> EdlError:
        return self._mismatch(
            f"the feature {name} has shape {tuple(found)} per record, the model's input "
            f"{model_input.name} takes {tuple(model_input.shape[1:])}",
            f"Write keras.Input({tuple(found)}), or let the input function yield the other shape. "
            "Neither has the dimension of the examples: edl makes the minibatches.",
        )

    def _mismatch(self, what: str, remedy: str) -> EdlError:
        return EdlError(ErrorCode.SHAPE_MISMATCH, what, where=self._place, remedy=remedy)


def _say_type(model_input: Any) -> str:
    """Return what to do about an input that gets texts, and is none of texts."""
    named = next((each.name for each in consumers(model_input) if isinstance(each, _OF_TEXTS)), "")
    if not named:
        return _NUMBERS
    return (
        f'Write keras.Input({tuple(model_input.shape[1:])}, dtype="string"): {named} takes texts.'
    )


def _ranks_agree(found: Any, wanted: Sequence[int | None]) -> bool:
    """Whether Keras accepts shape ``found`` for ``wanted``; it adds or drops a last 1 itself."""
    if found.rank is None:
        return True
    sizes = list(found)
    target = list(wanted)
    if len(sizes) == len(target) + 1 and sizes[-1] == 1:
        sizes.pop()
    elif len(sizes) == len(target) - 1 and target[-1] == 1:
        sizes.append(1)
    return len(sizes) == len(target) and all(
        size is None or other is None or size == other
        for size, other in zip(sizes[1:], target[1:], strict=True)
    )


def _call_parameters(model: keras.Model) -> list[str]:
    """Return the names of the tensors that ``call`` takes."""
    try:
        parameters = inspect.signature(model.call).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        p.name
        for p in parameters
        if p.kind is p.POSITIONAL_OR_KEYWORD
        and p.default is p.empty
        and p.name not in ("training", "mask")
    ]


def _use_of_first_parameter(model: keras.Model) -> Literal["keys", "positions", "unknown"]:
    """Return how the code of ``call`` uses its first parameter: by keys or by positions."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(type(model).call)))
    except (TypeError, OSError, SyntaxError):
        return "unknown"
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or len(function.args.args) < 2:
        return "unknown"
    first = function.args.args[1]
    annotation = ast.unparse(first.annotation) if first.annotation else ""
    if annotation.partition("[")[0].rpartition(".")[2] in ("dict", "Dict", "Mapping"):
        return "keys"
    uses = {_use_of(node, first.arg) for node in ast.walk(function)}
    return "keys" if "keys" in uses else "positions" if "positions" in uses else "unknown"


def _use_of(node: ast.AST, name: str) -> Literal["keys", "positions", "unknown"]:
    """Return how one node of the code uses the variable ``name``."""
    match node:
        case ast.Subscript(value=ast.Name(id=used), slice=ast.Constant(value=key)) if used == name:
            return "keys" if isinstance(key, str) else "positions"
        case ast.Attribute(value=ast.Name(id=used), attr="items" | "keys" | "values" | "get") if (
            used == name
        ):
            return "keys"
        case ast.Assign(targets=[ast.Tuple()], value=ast.Name(id=used)) if used == name:
            return "positions"
        case _:
            return "unknown"
