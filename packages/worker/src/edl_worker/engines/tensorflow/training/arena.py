"""The variables of a Keras model as flat buffers, in the order of the payload.

If workers train in step, the variables of the optimizer follow as state. Numbers that are no
float32 or float64, such as the counter of updates, are float64 in a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import keras
import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core import variable_names
from edl_worker.core.layout import DTYPES, PayloadLayout
from edl_worker.core.model_description import VariableDescription
from edl_worker.engines.tensorflow.embedding.tables import EmbeddingTables


@dataclass(frozen=True, slots=True)
class Weight(VariableDescription):
    """A variable that workers exchange with the parameter plane."""

    variable: keras.Variable


class Arena(PayloadLayout[Weight]):
    """The layout of a Keras model, with its variables.

    Attributes:
        model: the layout of the model's weights alone.
        optimizer_weights: the other weights.
    """

    def __init__(
        self,
        model: keras.Model,
        tables: EmbeddingTables | None = None,
        place: str = "",
        optimizer: Sequence[keras.Variable] | None = None,
    ) -> None:
        """Arrange the weights of a model that has been built.

        Args:
            model: the model.
            tables: its embedding tables, whose rows are not part of the payload.
            place: for messages, the file, line and name of the model.
            optimizer: the state of the optimizer, if workers have it; None: the master has it.

        Raises:
            EdlError: MODEL_CONTRACT, a weight cannot be sent; the message names it.
        """
        weights = _weights(model, tables, is_served=optimizer is None)
        if not any(weight.trainable for weight in weights) and not tables:
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                "the model has no trainable variables",
                where=place or f"model {model.name}",
                remedy="Give it a layer with weights, or set trainable=True where it was switched "
                "off.",
            )
        self.model = PayloadLayout(weights)
        self.optimizer_weights = _optimizer_weights(optimizer or ())
        super().__init__([*weights, *self.optimizer_weights])

    def pack(self) -> npt.NDArray[np.uint8]:
        """Return the present values as a payload of parameters; a copy."""
        buffer = np.empty(self.nbytes, np.uint8)
        at = 0
        for weight in self.weights:
            value = np.asarray(weight.variable.numpy(), weight.dtype, "C").reshape(-1)
            value = value.view(np.uint8)
            buffer[at : at + value.size] = value
            at += value.size
        return buffer


def _optimizer_weights(variables: Sequence[keras.Variable]) -> list[Weight]:
    names = variable_names.unique([f"optimizer/{variable.path}" for variable in variables])
    dtypes = [keras.backend.standardize_dtype(variable.dtype) for variable in variables]
    return [
        Weight(name, tuple(v.shape), dtype if dtype in DTYPES else "float64", False, v)
        for name, dtype, v in zip(names, dtypes, variables, strict=True)
    ]


def _weights(
    model: keras.Model, tables: EmbeddingTables | None, *, is_served: bool
) -> list[Weight]:
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
            raise _unsupported_error(
                name,
                f"has dtype {dtype}; parameters are served as {' or '.join(DTYPES)}",
                "Keep the variable in float32: with mixed precision only the computation "
                'is in half precision (dtype policy "mixed_float16" or "mixed_bfloat16").',
            )
        if is_served and trainable and getattr(variable, "constraint", None) is not None:
            raise _unsupported_error(
                name,
                f"has the constraint {type(variable.constraint).__name__}, "
                "which updates on the master would not keep",
                "Remove the constraint, express it as a regularizer or in the layer's call, or use "
                "--strategy allreduce.",
            )
        if trainable and getattr(variable, "overwrite_with_gradient", False):
            raise _unsupported_error(
                name, "is overwritten with its gradient", "Remove the float8 quantization."
            )
        weights.append(Weight(name, tuple(variable.shape), dtype, trainable, variable))
    return weights


def _unsupported_error(name: str, what: str, remedy: str) -> EdlError:
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"variable {name} {what}",
        where=f"variable {name}",
        remedy=remedy,
    )
