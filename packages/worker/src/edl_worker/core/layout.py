"""The position of each variable of a model in a payload.

A payload of parameters holds the groups one after the other, packed: trainable float32,
trainable float64, state float32, state float64. A gradient is its first half, a state delta
its second. State is what training changes without a gradient, such as the moving statistics
of BatchNormalization. With 16-bit wire precision, the first group is sent in that precision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from edl_worker.core.job import WirePrecision
from edl_worker.core.model_description import VariableDescription

DTYPES = ("float32", "float64")
"""The dtypes that are sent. Variables of other dtypes are no weights and stay with the worker."""

Weight = TypeVar("Weight", bound=VariableDescription, covariant=True)


@dataclass(frozen=True, slots=True)
class WeightGroup(Generic[Weight]):
    """The weights of one kind and dtype, which are contiguous in every payload.

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
        """The number of elements of each weight."""
        return [weight.size for weight in self.weights]

    def dtype_as(self, precision: WirePrecision) -> str:
        """Return the type in which its numbers are sent; those of 16 bits as their bits."""
        is_quantized = (
            self.trainable and self.dtype == "float32" and precision != WirePrecision.FLOAT32
        )
        return "uint16" if is_quantized else self.dtype


class PayloadLayout(Generic[Weight]):
    """All weights of a model, grouped.

    Attributes:
        groups: those that are not empty, in wire order.
        nbytes: bytes of a payload of parameters.
    """

    def __init__(self, weights: Iterable[Weight]) -> None:
        given = tuple(weights)
        groups: list[WeightGroup[Weight]] = []
        self.nbytes = 0
        for trainable in (True, False):
            for dtype in DTYPES:
                members = tuple(w for w in given if w.trainable is trainable and w.dtype == dtype)
                nbytes = sum(w.size for w in members) * np.dtype(dtype).itemsize
                if members:
                    groups.append(WeightGroup(trainable, dtype, members, self.nbytes, nbytes))
                self.nbytes += nbytes
        self.groups = tuple(groups)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights in wire order."""
        return tuple(weight for group in self.groups for weight in group.weights)

    def describe(self) -> list[VariableDescription]:
        """Return the weights for ``ModelDescription.variables``."""
        return [
            VariableDescription(
                name=weight.name,
                shape=weight.shape,
                dtype=weight.dtype,
                trainable=weight.trainable,
            )
            for weight in self.weights
        ]

    def nbytes_as(self, precision: WirePrecision) -> int:
        """Return the bytes of a payload of parameters as it is sent."""
        return sum(
            sum(group.sizes) * np.dtype(group.dtype_as(precision)).itemsize for group in self.groups
        )

    def views(
        self,
        payload: npt.NDArray[np.uint8],
        precision: WirePrecision = WirePrecision.FLOAT32,
    ) -> list[npt.NDArray[Any]]:
        """Return a payload as one flat array per group, not copied where alignment allows."""
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
