"""Messages and values whose fields have the same names, from one to the other.

A field that is missing is an error, so that none is forgotten; what differs is given by name.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
V = TypeVar("V")


def encode(kind: type[M], *sources: object, **given: Any) -> M:
    """Return a message of what is given, and otherwise of the attributes of the sources.

    Raises:
        AttributeError: no source has one of the message's fields.
    """
    for name in kind.DESCRIPTOR.fields_by_name.keys() - given.keys():
        source = next((each for each in sources if hasattr(each, name)), sources[-1])
        given[name] = getattr(source, name)
    return kind(**given)


def decode(kind: type[V], *messages: Message, **given: Any) -> V:
    """Return a dataclass of what is given, and otherwise of the fields of the messages.

    What is repeated becomes a tuple, a map a dict, and what is absent None.

    Raises:
        AttributeError: no message has one of the attributes.
    """
    for field in dataclasses.fields(cast(Any, kind)):
        name = field.name
        if name not in given:
            message = next((each for each in messages if hasattr(each, name)), messages[-1])
            value = getattr(message, name)
            copy = _copier(message.DESCRIPTOR, name)
            given[name] = copy(value) if copy else value if message.HasField(name) else None
    return kind(**given)


@cache
def _copier(message: Descriptor, name: str) -> Any:
    """Return the type that copies the values of a field; None for a field that may be absent."""
    field = message.fields_by_name[name]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict
    if field.is_repeated:
        return tuple
    return None if field.has_presence else _same


def _same(value: Any) -> Any:
    return value
