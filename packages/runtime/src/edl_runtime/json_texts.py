"""Parses foreign JSON, such as that of a master in a container; all faults are one error.

Python's parser gives up with another kind of error at a text that is nested too deeply.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    M = TypeVar("M", bound=Message)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse the JSON object that a text holds. Raises: ValueError: it holds none."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def parse_polled_message(text: bytes, message: M) -> M:
    """Parse the message that a text holds, as ``parse_message`` does; an equal text only once.

    For files that are read again and again, and seldom change: parsing takes milliseconds.

    Args:
        message: of the kind, and empty; it is filled and returned.

    Raises:
        google.protobuf.json_format.ParseError: it holds none.
    """
    kind: Any = type(message)  # whose instances have no hash, but it has one
    message.MergeFromString(_serialize_once(kind, text))
    return message


@functools.lru_cache(maxsize=4)
def _serialize_once(kind: Callable[[], Message], text: bytes) -> bytes:
    return parse_message(text, kind()).SerializeToString()


def parse_message(text: str | bytes, message: M) -> M:
    """Parse the message that a text holds, without fields that this version does not know.

    Args:
        message: of the kind, which is filled and returned.

    Raises:
        google.protobuf.json_format.ParseError: it holds none.
    """
    from google.protobuf import json_format

    try:
        found = parse_object(text)
    except ValueError as error:
        raise json_format.ParseError(f"Failed to load JSON: {error}") from error
    try:
        return json_format.ParseDict(found, message, ignore_unknown_fields=True)
    # Where a field is of another kind.
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise json_format.ParseError(str(error)) from error
