"""Runs a mapped function on many records at once, where that is provably the same.

A ``.map()`` that parses each record with ``tf.io.parse_single_example`` costs a multiple of the
same operations on a batch. So a function is rewritten if it only parses features of fixed shapes,
stacks them, and computes with them element by element: these operations take a batch, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

SIZE = 128
"""Records that are parsed at once. More gain nothing."""

_MAX_RECORD_BYTES = 16_384
"""Of the tensors that are made of a record. Copying more takes longer than parsing saves."""
_TEXT_BYTES = 32
_MAX_KEPT = 64

_PARSE, _STACK = "ParseExampleV2", "Pack"

_ELEMENTWISE = frozenset(
    (
        *("Identity", "Cast", "Abs", "Neg", "Sign", "Square", "Sqrt", "Rsqrt", "Reciprocal"),
        *("Exp", "Expm1", "Log", "Log1p", "Sin", "Cos", "Tanh", "Sigmoid", "Relu", "Floor"),
        *("Ceil", "Round", "Rint", "IsNan", "IsFinite", "AddV2", "Sub", "Mul", "Div", "RealDiv"),
        *("FloorDiv", "FloorMod", "DivNoNan", "Pow", "Maximum", "Minimum", "SquaredDifference"),
        *("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"),
        *("LogicalAnd", "LogicalOr", "LogicalNot", "SelectV2"),
    )
)
"""Operations whose results depend on elements alone, after broadcasting from the last dimension."""

Function = Callable[[tf.Tensor], tuple[tf.Tensor, ...]]


class BatchedFunctions:
    """The batched forms of mapped functions, which are traced once for all pipelines."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Any] = {}

    def find(self, function: Any, trace: Callable[[Function], Any]) -> Any | None:
        """Return what a function computes, for a batch of records; None if it cannot be batched.

        Args:
            function: the traced function of a ``.map()`` over records, a concrete function.
            trace: traces a function that takes a batch of records.
        """
        if function.captured_inputs:
            return None
        definition = function.graph.as_graph_def()
        key = definition.SerializeToString(deterministic=True)
        if key not in self._kept:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            batched = _is_same_on_batches(function)
            self._kept[key] = trace(_on_batches(function, definition)) if batched else None
        return self._kept[key]


def _on_batches(function: Any, definition: Any) -> Function:
    """Return a function of a batch with the operations of a function of one record.

    Args:
        definition: of the function's graph, which is changed.
    """
    (record,) = function.inputs
    outputs = [tensor.name for tensor in function.outputs]
    for node in list(definition.node):
        if node.name == record.op.name:
            definition.node.remove(node)
        elif node.op == _STACK and node.attr["axis"].i >= 0:
            node.attr["axis"].i += 1  # the first one is the batch

    def compute(records: tf.Tensor) -> tuple[tf.Tensor, ...]:
        made = tf.graph_util.import_graph_def(
            definition, input_map={record.name: records}, return_elements=outputs, name=""
        )
        return tuple(made)

    return compute


def _is_same_on_batches(function: Any) -> bool:
    """Whether a function parses records, and its operations on a batch yield a batch of results."""
    if len(function.inputs) != 1:
        return False
    (record,) = function.inputs
    if record.dtype != tf.string or record.shape.rank != 0:
        return False
    ranks = {record.name: 0}  # of what is computed from the record; all else is constant
    operations = [each for each in function.graph.get_operations() if each is not record.op]
    for operation in operations:
        outputs = operation.outputs
        if operation.control_inputs or not all(t.shape.is_fully_defined() for t in outputs):
            return False
        if any(tensor.name in ranks for tensor in operation.inputs):
            if not any(each(operation, ranks) for each in (_parses, _stacks, _broadcasts_alike)):
                return False
            ranks.update((tensor.name, tensor.shape.rank) for tensor in outputs)
        elif operation.op_def.is_stateful:
            return False
    return (
        any(operation.type == _PARSE for operation in operations)
        and all(tensor.name in ranks for tensor in function.outputs)
        and sum(_bytes(tensor) for tensor in function.outputs) <= _MAX_RECORD_BYTES
    )


def _parses(operation: tf.Operation, ranks: Mapping[str, int]) -> bool:
    """Whether an operation parses records without names, with constant defaults, as it stands."""
    if operation.type != _PARSE:
        return False
    _, names, *others = operation.inputs
    return (
        names.shape.as_list() == [0]
        and not any(tensor.name in ranks for tensor in (names, *others))
        and operation.get_attr("num_sparse") == 0
        and not operation.get_attr("ragged_value_types")
    )


def _stacks(operation: tf.Operation, ranks: Mapping[str, int]) -> bool:
    """Whether an operation stacks tensors that are all computed from the record."""
    return operation.type == _STACK and all(tensor.name in ranks for tensor in operation.inputs)


def _broadcasts_alike(operation: tf.Operation, ranks: Mapping[str, int]) -> bool:
    """Whether an operation on elements broadcasts a batch as it broadcasts one record."""
    if operation.type not in _ELEMENTWISE:
        return False
    computed = {ranks[tensor.name] for tensor in operation.inputs if tensor.name in ranks}
    constants = [tensor.shape.rank for tensor in operation.inputs if tensor.name not in ranks]
    return len(computed) == 1 and max(constants, default=0) <= max(computed)


def _bytes(tensor: tf.Tensor) -> int:
    size: int = tensor.dtype.size if tensor.dtype != tf.string else _TEXT_BYTES
    return size * int(tensor.shape.num_elements())
