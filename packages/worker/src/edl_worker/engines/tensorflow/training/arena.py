"""The variables of a model as flat buffers, in the order of the payload.

A payload of parameters holds the groups one after the other, packed: trainable float32,
trainable float64, state float32, state float64. A gradient is its first half, a state delta
its second. State is what training changes without a gradient, such as the moving statistics
of BatchNormalization. With a precision of 16 bits the first group is sent as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core import variable_names
from edl_worker.core.job import WirePrecision
from edl_worker.core.model_description import VariableDescription
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables

DTYPES = ("float32", "float64")
"""What is sent. Variables of other kinds of numbers are no weights and stay with the worker."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A variable that workers exchange with the parameter plane."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    variable: keras.Variable

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Weights of one kind and dtype: neighbours in every payload.

    Attributes:
        weights: in order.
        start: first byte in a payload of parameters.
        nbytes: bytes of all of them.
    """

    trainable: bool
    dtype: str
    weights: tuple[Weight, ...]
    start: int
    nbytes: int

    @property
    def sizes(self) -> list[int]:
        return [weight.size for weight in self.weights]

    def dtype_as(self, precision: WirePrecision) -> str:
        """The type in which its numbers are sent; those of 16 bits as their bits."""
        is_quantized = (
            self.trainable and self.dtype == "float32" and precision != WirePrecision.FLOAT32
        )
        return "uint16" if is_quantized else self.dtype


class Arena:
    """All weights of a model, grouped.

    Attributes:
        groups: those that are not empty, in wire order.
        nbytes: bytes of a payload of parameters.
    """

    def __init__(self, model: keras.Model, tables: EmbeddingTables | None = None) -> None:
        """Arrange the weights of a model that has been built.

        Args:
            model: the model.
            tables: its embedding tables, whose rows are not part of the payload.

        Raises:
            EdlError: MODEL_CONTRACT, a weight cannot be sent; the message names it.
        """
        weights = _weights(model, tables)
        groups: list[WeightGroup] = []
        self.nbytes = 0
        for trainable in (True, False):
            for dtype in DTYPES:
                members = tuple(w for w in weights if w.trainable is trainable and w.dtype == dtype)
                nbytes = sum(w.size for w in members) * np.dtype(dtype).itemsize
                if members:
                    groups.append(WeightGroup(trainable, dtype, members, self.nbytes, nbytes))
                self.nbytes += nbytes
        self.groups = tuple(groups)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All of them, in wire order."""
        return tuple(weight for group in self.groups for weight in group.weights)

    def describe(self) -> list[VariableDescription]:
        """The weights for ``ModelDescription.variables``."""
        return [
            VariableDescription(
                name=weight.name,
                shape=weight.shape,
                dtype=weight.dtype,
                trainable=weight.trainable,
            )
            for weight in self.weights
        ]

    def pack(self) -> npt.NDArray[np.uint8]:
        """The present values as a payload of parameters; a copy."""
        buffer = np.empty(self.nbytes, np.uint8)
        at = 0
        for weight in self.weights:
            value = np.ascontiguousarray(weight.variable.numpy()).reshape(-1).view(np.uint8)
            buffer[at : at + value.size] = value
            at += value.size
        return buffer

    def nbytes_as(self, precision: WirePrecision) -> int:
        """Bytes of a payload of parameters as it is sent."""
        return sum(
            sum(group.sizes) * np.dtype(group.dtype_as(precision)).itemsize for group in self.groups
        )

    def views(
        self,
        payload: npt.NDArray[np.uint8],
        precision: WirePrecision = WirePrecision.FLOAT32,
    ) -> list[npt.NDArray[Any]]:
        """A payload as one flat array per group, without a copy where alignment allows."""
        arrays, at = [], 0
        for group in self.groups:
            dtype = np.dtype(group.dtype_as(precision))
            raw = payload[at : at + sum(group.sizes) * dtype.itemsize]
            at += raw.size
            # A float64 group may begin between two multiples of eight.
            if raw.ctypes.data % dtype.itemsize:
                raw = raw.copy()
            arrays.append(raw.view(dtype))
        return arrays


class ReceiveBuffer:
    """The buffer into which values from the master are received, always the same one.

    Args:
        sizes: bytes that may come, most first.
    """

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes
        self._memory = np.empty(sizes[0], np.uint8)
        self.content = self._memory

    def open(self, nbytes: int) -> memoryview:
        """The buffer, to be filled; it is ``content`` from now on.

        Raises:
            EdlError: the values are not as large as the model's.
        """
        if nbytes not in self._sizes:
            raise EdlError(
                ErrorCode.INTERNAL,
                f"the master sent {nbytes} bytes of parameters, the model has {self._sizes[0]}",
                remedy="This is an internal error of edl: master and worker agreed on a layout.",
            )
        self.content = self._memory[:nbytes]
        return self.content.data


def _weights(model: keras.Model, tables: EmbeddingTables | None) -> list[Weight]:
    elsewhere = {id(variable) for variable in tables.table_variables} if tables else set()
    variables: Sequence[keras.Variable] = model.weights
    unique = variable_names.unique([variable.path for variable in variables])
    weights = []
    for name, variable in zip(unique, variables, strict=True):
        if id(variable) in elsewhere:
            continue
        trainable = bool(variable.trainable)
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype not in DTYPES:
            if not trainable and "float" not in dtype:
                continue  # counters, lookup tables, seeds
            raise _unsupported(
                name,
                f"has dtype {dtype}; parameters are served as {' or '.join(DTYPES)}",
                "Keep the variable in float32: with mixed precision only the computation "
                'is in half precision (dtype policy "mixed_float16" or "mixed_bfloat16").',
            )
        if trainable and getattr(variable, "constraint", None) is not None:
            raise _unsupported(
                name,
                f"has the constraint {type(variable.constraint).__name__}, "
                "which updates on the master would not keep",
                "Remove the constraint, or express it as a regularizer or in the layer's call.",
            )
        if trainable and getattr(variable, "overwrite_with_gradient", False):
            raise _unsupported(
                name, "is overwritten with its gradient", "Remove the float8 quantization."
            )
        weights.append(Weight(name, tuple(variable.shape), dtype, trainable, variable))
    if not any(weight.trainable for weight in weights) and not tables:
        raise EdlError(
            ErrorCode.MODEL_CONTRACT,
            "the model has no trainable variables",
            where=f"model {model.name}",
            remedy="Give it a layer with weights, or set trainable=True where it was switched off.",
        )
    return weights


def _unsupported(name: str, what: str, remedy: str) -> EdlError:
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"variable {name} {what}",
        where=f"variable {name}",
        remedy=remedy,
    )
