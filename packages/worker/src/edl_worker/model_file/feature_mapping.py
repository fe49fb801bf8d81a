"""Features to the model's inputs: by name, by position, or as they are."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

import keras
import tensorflow as tf

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.columns import Column


class FeaturePassing(Enum):
    """How a subclassed model's ``call`` takes its features."""

    WHOLE = auto()  # the nest as it is
    ALONE = auto()  # a dictionary's only tensor
    LISTED = auto()  # a dictionary's tensors in order
    BY_NAME = auto()  # one argument per feature


class FeatureMapper:
    """Calls a model with the features of a batch.

    Args:
        columns: the feature columns, if the model file has them: column i is input i.
    """

    def __init__(self, model: keras.Model, columns: Sequence[Column] | None, where: str) -> None:
        self._model = model
        self._keys = [column.key for column in columns] if columns is not None else None
        self._where = where
        self._manner: FeaturePassing | None = None

    @property
    def inputs(self) -> list[Any]:
        """Symbolic inputs of a functional or sequential model; none of a subclassed one."""
        try:
            return list(getattr(self._model, "inputs", None) or ())
        except (AttributeError, ValueError):
            return []

    def manners(self, features: Any) -> list[FeaturePassing]:
        """Ways to feed a subclassed model with these features, the likeliest first."""
        if not isinstance(features, Mapping):
            return [FeaturePassing.WHOLE]
        names = _call_parameters(self._model)
        if len(names) > 1 and all(name in features for name in names):
            return [FeaturePassing.BY_NAME]
        use = _use_of_first_parameter(self._model)
        if use == "keys":
            return [FeaturePassing.WHOLE]
        if use == "positions":
            return [FeaturePassing.LISTED, FeaturePassing.WHOLE]
        if len(features) == 1:
            return [FeaturePassing.ALONE, FeaturePassing.WHOLE]
        return (
            [FeaturePassing.WHOLE, FeaturePassing.LISTED] if self._keys else [FeaturePassing.WHOLE]
        )

    def settle(self, manner: FeaturePassing) -> None:
        """Feeds a subclassed model in this manner from now on."""
        self._manner = manner

    def __call__(self, features: Any, training: bool) -> Any:
        inputs = self.inputs
        if inputs:
            flat = self._by_input(features, inputs)
            if isinstance(self._model, keras.Sequential):
                return self._model(flat[0], training=training)
            packed = keras.tree.pack_sequence_as(self._model.input, flat)
            return self._model(packed, training=training)
        manner = self._manner or self.manners(features)[0]
        match manner:
            case FeaturePassing.BY_NAME:
                names = _call_parameters(self._model)
                return self._model(*(features[name] for name in names), training=training)
            case FeaturePassing.ALONE:
                (features,) = features.values()
            case FeaturePassing.LISTED:
                features = [features[key] for key in self._keys or features]
            case FeaturePassing.WHOLE:
                pass
        return self._model(features, training=training)

    def _by_input(self, features: Any, inputs: list[Any]) -> list[Any]:
        values = self._in_order(features, inputs)
        return [
            self._fit(name, value, one) for (name, value), one in zip(values, inputs, strict=True)
        ]

    def _in_order(self, features: Any, inputs: list[Any]) -> list[tuple[str, Any]]:
        """Name and tensor for each input."""
        names = [one.name for one in inputs]
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
            if all(name in features for name in names):
                return [(name, features[name]) for name in names]
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
                f"there are {len(flat)} features, the model has {len(inputs)} inputs",
                "Yield a dictionary of features with the inputs' names.",
            )
        return list(zip(names, flat, strict=True))

    def _fit(self, name: str, value: Any, one: Any) -> Any:
        """The value with the input's dtype, and its shape where column and input differ."""
        wanted = tuple(one.shape[1:])
        if self._keys is not None and None not in wanted:
            found = value.shape[1:]
            if found.is_fully_defined() and tuple(found) != wanted:
                if math.prod(found) != math.prod(wanted):
                    raise self._shape(name, found, one)
                value = tf.reshape(value, (-1, *wanted))
        elif not _ranks_agree(value.shape, one.shape):
            raise self._shape(name, value.shape[1:], one)
        numeric = one.dtype != "string" and value.dtype != tf.string
        if numeric and isinstance(value, tf.Tensor) and value.dtype.name != one.dtype:
            value = tf.cast(value, one.dtype)
        return value

    def _shape(self, name: str, found: Any, one: Any) -> EdlError:
        return self._mismatch(
            f"the feature {name} has shape {tuple(found)} per record, the model's input "
            f"{one.name} takes {tuple(one.shape[1:])}",
            "Make them agree; do not batch in the dataset function, minibatches are made after it.",
        )

    def _mismatch(self, what: str, remedy: str) -> EdlError:
        return EdlError(error_pb2.SHAPE_MISMATCH, what, where=self._where, remedy=remedy)


def _ranks_agree(found: Any, wanted: Sequence[int | None]) -> bool:
    """Whether Keras can take ``found`` for ``wanted``; it adds or drops a last 1 by itself."""
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
    """Names of the tensors that ``call`` takes."""
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


def _use_of_first_parameter(model: keras.Model) -> str:
    """Whether ``call`` takes its inputs by ``keys``, by ``positions``, or ``whole``."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(type(model).call)))
    except (TypeError, OSError, SyntaxError):
        return "whole"
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or len(function.args.args) < 2:
        return "whole"
    first = function.args.args[1]
    name = first.arg
    annotation = ast.unparse(first.annotation) if first.annotation else ""
    if annotation.partition("[")[0].rpartition(".")[2] in ("dict", "Dict", "Mapping"):
        return "keys"
    uses = set()
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=ast.Name(id=used), slice=ast.Constant(value=key)) if (
                used == name
            ):
                uses.add("keys" if isinstance(key, str) else "positions")
            case ast.Attribute(value=ast.Name(id=used), attr="items" | "keys" | "values" | "get"):
                if used == name:
                    uses.add("keys")
            case ast.Assign(targets=[ast.Tuple()], value=ast.Name(id=used)) if used == name:
                uses.add("positions")
            case _:
                pass
    return "keys" if "keys" in uses else "positions" if "positions" in uses else "whole"
