"""Instances of requests, which are JSON, as the records that a model was trained on."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from recordio import example
from recordio.description import NUMBER, DataDescription, DataField, Form
from recordio.formats.csvfile import join_row

_BASE64 = "b64"
"""The key of an object that stands for bytes, as in TensorFlow Serving."""


@dataclass(frozen=True, slots=True)
class EncodedInstances:
    """The records of one request.

    Attributes:
        contents: one for each instance.
        columns: of rows of CSV, in order; empty: the records are no rows.
    """

    contents: Sequence[bytes]
    columns: tuple[str, ...] = ()


def encode_instances(instances: Any, data: DataDescription | None) -> EncodedInstances:
    """Return the records that instances stand for.

    Args:
        instances: objects with the columns or features of a record; or whole records, as texts or
            ``{"b64": …}``, if the model was trained on other data than tables and tf.Examples.
        data: what the model was trained on; None: not known.

    Raises:
        EdlError: USAGE, an instance is no record of this data.
    """
    if not isinstance(instances, list):
        raise _error("the instances are no list", 'Send {"instances": [{…}, …]}, also for one.')
    if not instances:
        raise _error("there are no instances", "Send a list of at least one instance.")
    if data is None:
        return EncodedInstances(
            [_bytes_of(one, f"instances[{at}]") for at, one in enumerate(instances)]
        )
    for at, instance in enumerate(instances):
        _check_names(instance, data, f"instances[{at}]")
    if data.form is Form.TABLE:
        return _encode_rows(instances, data)
    kinds = {field.name: field.kind for field in data.fields}
    return EncodedInstances(
        [
            example.encode(
                {
                    name: _feature(value, kinds[name], f"instances[{at}].{name}")
                    for name, value in instance.items()
                    if value is not None
                }
            )
            for at, instance in enumerate(instances)
        ]
    )


def example_instance(data: DataDescription | None) -> Any:
    """Return an instance to begin with: zeros and empty texts."""
    if data is None:
        return {_BASE64: ""}
    return {field.name: _example_value(field) for field in data.fields}


def _example_value(field: DataField) -> Any:
    value: Any = "" if field.kind not in (NUMBER, "float", "int64") else 0
    return value if field.size in (-1, 1) else [value] * field.size


def find_lacking(records: EncodedInstances, data: DataDescription | None) -> list[str]:
    """Return the columns of the training data that rows of a table lack, such as the label's."""
    if data is None or data.form is not Form.TABLE:
        return []
    return [name for name in data.names if name not in records.columns]


def _check_names(instance: Any, data: DataDescription, place: str) -> None:
    if not isinstance(instance, Mapping):
        raise _error(
            f"{place} is no object with {_COLUMNS[data.form]}",
            f"Send an object such as {_show_names(data)}.",
        )
    if unknown := [name for name in instance if name not in data.names]:
        raise _error(
            f"{place} has {unknown[0]!r}, which the training data had not",
            f"It had {', '.join(data.names)}.",
        )


_COLUMNS = {Form.TABLE: "columns", Form.EXAMPLES: "features"}


def _show_names(data: DataDescription) -> str:
    return "{" + ", ".join(f'"{name}": …' for name in data.names) + "}"


def _encode_rows(instances: Sequence[Mapping[str, Any]], data: DataDescription) -> EncodedInstances:
    columns = tuple(name for name in data.names if name in instances[0])
    for at, instance in enumerate(instances):
        if set(instance) != set(columns):
            other = sorted(set(instance) ^ set(columns))
            raise _error(
                f"instances[{at}] and instances[0] differ in {', '.join(other)}",
                "Send instances with the same columns; null is an empty cell.",
            )
    return EncodedInstances(
        [
            join_row(_cell(instance[name], f"instances[{at}].{name}") for name in columns)
            for at, instance in enumerate(instances)
        ],
        columns,
    )


def _cell(value: Any, place: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float | str):
        return str(value)
    raise _error(f"{place} is neither a number nor a text", "A cell of a table has one value.")


def _feature(value: Any, kind: str, place: str) -> Any:
    values = value if isinstance(value, list) else [value]
    if kind == "bytes":
        return [_bytes_of(one, place) for one in values]
    flat = list(_flatten(values))
    if not all(isinstance(one, int | float) for one in flat):
        raise _error(f"{place} has a value that is no number", "The training data had numbers.")
    if kind == "float":
        return [float(one) for one in flat]
    if any(isinstance(one, float) and not one.is_integer() for one in flat):
        raise _error(f"{place} has a fraction", "The training data had integers.")
    return [int(one) for one in flat]


def _flatten(values: Sequence[Any]) -> Any:
    for one in values:
        if isinstance(one, list):
            yield from _flatten(one)
        else:
            yield one


def _bytes_of(value: Any, place: str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping) and set(value) == {_BASE64}:
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise _error(f"{place} is no base64: {error}", "Encode the bytes again.") from None
    raise _error(f"{place} is no text", 'Send a text, or {"b64": "…"} for bytes.')


def _error(what: str, remedy: str) -> EdlError:
    return EdlError(ErrorCode.USAGE, what, where="instances", remedy=remedy)
