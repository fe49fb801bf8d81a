"""Settings as names and texts that everybody may see who sees the job."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")


def public_settings(settings: Mapping[str, Any], left_out: Collection[str]) -> dict[str, str]:
    """All settings by their dotted names, without what is empty and without passwords of URIs.

    Args:
        settings: by name; a mapping among them is a group of settings.
        left_out: names of the outermost settings that are not for everybody.
    """
    kept = {name: value for name, value in settings.items() if name not in left_out}
    return {name: without_user_info(text) for name, text in _flat(kept, "") if text}


def without_user_info(text: str) -> str:
    """A text in which URIs name neither user nor password."""
    return _USER_INFO.sub("", text)


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _flat(item, f"{name}.{key}" if name else str(key))
        case None:
            return
        case list() | tuple():
            yield name, ", ".join(map(str, value))
        case _:
            yield name, str(value)
