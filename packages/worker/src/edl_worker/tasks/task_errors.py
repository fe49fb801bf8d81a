"""Errors of tasks: what happened, where in the data, and how to remedy it."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.core.tasks import Lease
from edl_worker.model_file.bad_records import BadRecordError, Records
from edl_worker.model_file.bad_values import find_value
from edl_worker.model_file.error_messages import message_of
from edl_worker.model_file.errors import NUMBERS_AS_LABELS, is_about_text, user_code_error
from edl_worker.model_file.framework_types import dtype_name, is_tensorflow_error, leaves
from edl_worker.model_file.known_errors import BEYOND_TABLE, enough_rows
from recordio.storage.store_errors import reason_of, remedy_of

_ABOUT_SHAPES = re.compile(
    r"shape|dimension|rank|incompatible|must be equal|elements|label value|out of range|dtype"
    r"|Cast \w+ to",
    re.I,
)

# Another attempt, elsewhere, would get the same result.
_PERMANENT: frozenset[ErrorCode.ValueType] = frozenset(
    (
        ErrorCode.NAN_LOSS,
        ErrorCode.SHAPE_MISMATCH,
        ErrorCode.DATA_DAMAGED,
        ErrorCode.MODEL_CONTRACT,
        ErrorCode.OUTPUT_EXISTS,
        ErrorCode.USAGE,
    )
)


_NAMED_RANGES = 3
"""A task of a shuffled epoch has many."""

_SLIPS = (AttributeError, IndexError, KeyError, NameError, TypeError)
"""Exceptions that the same code raises for the same records, wherever it runs."""

# Errors of the model file, the data or memory that depend on the records.
_ABOUT_RECORDS = frozenset(
    (
        ErrorCode.USER_CODE,
        ErrorCode.SHAPE_MISMATCH,
        ErrorCode.DATA_DAMAGED,
        ErrorCode.DATA_UNREADABLE,
        ErrorCode.SYSTEM,
    )
)


def is_permanent(error: EdlError) -> bool:
    """Whether another attempt at the task, elsewhere, cannot help."""
    return error.code in _PERMANENT or isinstance(_root_cause(error), _SLIPS)


def _root_cause(error: BaseException) -> BaseException:
    # An error that was raised from itself is its own cause.
    while error.__cause__ is not None and error.__cause__ is not error:
        error = error.__cause__
    return error


def place(lease: Lease, minibatch: int | None = None) -> str:
    """Return the records of a task, for an error message; empty if it has none."""
    places: dict[str, list[str]] = {}
    ranges = lease.joined_ranges()
    more = len(ranges) - _NAMED_RANGES
    for part in ranges[:_NAMED_RANGES] if more > 1 else ranges:
        places.setdefault(part.uri, []).append(f"[{part.start}, {part.stop})")
    text = "; ".join(f"{uri}, records {' '.join(parts)}" for uri, parts in places.items())
    if more > 1:
        text += f", and {more} more ranges"
    return text if minibatch is None else f"{text}, minibatch {minibatch}"


def add_place(error: EdlError, where: str) -> None:
    """Add the records to the place of an error that is about them, unless it names one."""
    is_placed = isinstance(error, BadRecordError) or where in error.where
    if error.code in _ABOUT_RECORDS and not is_placed:
        error.where = _at(error.where, where)


def explain(
    error: Exception,
    *,
    doing: str,
    where: str,
    zoo: Path,
    inputs: Any = None,
    batch: Batch | None = None,
) -> EdlError:
    """Return the error for an exception that was raised while a task was running.

    Args:
        doing: subject and verb, such as "the training step raised".
        where: the place if no frame of the model zoo is known.
        zoo: root of the model zoo.
        inputs: of the model, for their shapes.
        batch: the minibatch that was being computed, for its shapes.
    """
    found = user_code_error(
        error,
        zoo,
        code=ErrorCode.USER_CODE,
        action=doing,
        place=where,
        remedy="Correct the model file at this place; `edl zoo check` tries it without a job.",
    )
    if found.where != where:
        found.where = _at(found.where, where)
    if batch is not None and is_about_text(error, batch.labels):
        found.code = ErrorCode.SHAPE_MISMATCH
        found.what += f"; the labels are strings: {shapes(batch.labels)}"
        found.remedy = NUMBERS_AS_LABELS
    elif match := BEYOND_TABLE.search(str(error)):
        found.code = ErrorCode.SHAPE_MISMATCH
        greatest = _greatest_id(match, batch.features if batch is not None else None)
        if greatest >= 0:
            found.what += f"; the greatest id of this minibatch is {greatest}"
        found.remedy = enough_rows(greatest, error)
    elif batch is not None and _is_about_shapes(error):
        found.code = ErrorCode.SHAPE_MISMATCH
        found.what += f"; minibatch: {shapes(batch.features)}, labels {shapes(batch.labels)}"
        if inputs:
            found.what += f"; model input: {shapes(inputs)}"
        found.remedy = (
            "Make the dataset function (or feature_columns and label_columns) give what the "
            "model and the loss expect."
        )
    return found


def _greatest_id(match: re.Match[str], features: Any) -> int:
    """Return the greatest of the ids that one without a row was among, as far as it shows.

    Args:
        match: of ``BEYOND_TABLE``.
        features: of the minibatch; those that the model looks up as they are have the id where
            the message has it.
    """
    known_id = int(match.group(2))
    place = tuple(map(int, match.group(1).split(","))) if match.group(1) else ()
    for part in leaves(features):
        if not hasattr(part, "__array__") or known_id < 0:
            continue
        ids = np.asarray(part)
        is_inside = len(ids.shape) == len(place) and all(map(int.__lt__, place, ids.shape))
        if is_inside and ids.dtype.kind in "iuf" and ids[place] == known_id:
            return int(ids.max())
    return known_id


_FINITE_VALUES = (
    "Make the input function yield finite numbers, or leave such records out of the data: edl data "
    "inspect --check FILE finds them."
)


class NotFiniteError(EdlError):
    """A loss or gradient that is not finite because what it is computed of is not."""


def name_value(error: NotFiniteError, records: Callable[[], Sequence[Records]]) -> EdlError:
    """Return the error for the value in the data that is not finite.

    It is the same error if the data has no such value: the input function has made it.

    Args:
        records: what was read, as it is in the files.
    """
    found = find_value(records)
    if found is None:
        return error
    place, value = found
    return BadRecordError(
        ErrorCode.DATA_DAMAGED,
        f"{error.what}; {value} at {place}",
        where=f"{place}, read by {error.where}",
        remedy=_FINITE_VALUES,
    )


def not_finite_error(
    lease: Lease,
    minibatch: int,
    version: int | None,
    what: str,
    batches: Iterable[Batch | None] = (),
) -> EdlError:
    """Return the error for a loss or gradient that is not a number.

    Args:
        batches: what it was computed of.
    """
    where = place(lease, minibatch)
    return find_not_finite(what, where, batches) or EdlError(
        ErrorCode.NAN_LOSS,
        f"{what} at parameter version {version}",
        where=where,
        remedy="Lower the learning rate (--set learning-rate=...), clip gradients (clipnorm), or "
        "look for logarithms of zero and divisions by zero in model and loss.",
    )


def find_not_finite(
    what: str, where: str, batches: Iterable[Batch | None]
) -> NotFiniteError | None:
    """Return the error for minibatches with values that are not finite; None if all are finite.

    Args:
        what: was computed of them, and is not finite.
        where: they come from.
    """
    for batch in filter(None, batches):
        parts = (("sample weights", batch.weights), ("labels", batch.labels))
        for kind, nest in (*parts, ("features", batch.features)):
            named = nest if isinstance(nest, Mapping) else {"": nest}
            bad = [name for name, part in named.items() if not all(map(_is_finite, leaves(part)))]
            if bad:
                names = f"the {kind} {', '.join(bad)}".rstrip()
                return NotFiniteError(
                    ErrorCode.NAN_LOSS,
                    f"{what}: {names} are not finite",
                    where=where,
                    remedy=_FINITE_VALUES,
                )
    return None


def _is_finite(part: Any) -> bool:
    is_array = "float" in dtype_name(part) and hasattr(part, "__array__")
    return not is_array or bool(np.isfinite(np.asarray(part, np.float32)).all())


def is_about_writing(error: BaseException) -> bool:
    """Whether an output could not be written; libraries raise errors of their own for that."""
    return isinstance(error, OSError) or _is_full(error) or "Permission denied" in str(error)


def write_error(error: BaseException, path: str) -> EdlError:
    """Return the error for an output that could not be written."""
    if _is_full(error):
        return EdlError(
            ErrorCode.DISK_FULL,
            f"no space is left for {path}",
            where=path,
            remedy="Free some space there; the incomplete output was removed.",
        )
    reason = getattr(error, "strerror", None) or message_of(error)
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"{path} cannot be written: {reason}",
        where=path,
        remedy="Allow the workers to write there.",
    )


def store_error(error: Exception, uri: str) -> EdlError:
    """Return the error for an output that its store does not take."""
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"{uri} cannot be written: {reason_of(error)}",
        where=uri,
        remedy=remedy_of(error),
    )


def _is_full(error: BaseException) -> bool:
    text = str(error)
    return (
        getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        or "No space left" in text
        or "errno = 28" in text
        or "quota exceeded" in text
    )


def shapes(nest: Any) -> str:
    """Return dtypes and shapes of a nest of tensors, such as ``{image: float32(64, 28, 28)}``."""
    match nest:
        case None:
            return "none"
        case dict():
            return "{" + ", ".join(f"{key}: {shapes(value)}" for key, value in nest.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(shapes(value) for value in nest) + "]"
        case _:
            dtype = getattr(nest, "dtype", None)
            name = getattr(dtype, "name", dtype) or type(nest).__name__
            shape = tuple(getattr(nest, "shape", ()))
            return f"{name}({', '.join(str(size) for size in shape)})"


def _at(code: str, data: str) -> str:
    return f"{code} (while at {data})" if code and data else code or data


def _is_about_shapes(error: BaseException) -> bool:
    is_kind = isinstance(error, ValueError | TypeError) or any(
        is_tensorflow_error(error, name) for name in ("InvalidArgumentError", "UnimplementedError")
    )
    return is_kind and bool(_ABOUT_SHAPES.search(str(error)))
