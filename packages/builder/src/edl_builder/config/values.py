"""Typed values of the settings file: a wrong type is refused, and never read as something else."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from edl_builder.core.failure import BuilderError, Reason


def wrong_setting(where: str, what: str) -> BuilderError:
    """Return the error for a setting."""
    return BuilderError(
        Reason.INVALID,
        what,
        where=where,
        remedy="See `python -m edl_builder --help` and docs/builder.md.",
    )


def check_section(found: object, known: Collection[str] | None, where: str) -> Mapping[str, Any]:
    """Return the value if it is a section with only these settings; None allows any.

    Raises:
        BuilderError: it is not.
    """
    if not isinstance(found, dict):
        raise wrong_setting(where, "this is not a section")
    for name in found:
        if known is not None and name not in known:
            raise wrong_setting(
                where, f"there is no setting {name!r}; known: {', '.join(sorted(known))}"
            )
    return found


def text(found: Mapping[str, Any], name: str, where: str, default: str = "") -> str:
    """Return a text; raises ``BuilderError``."""
    value = found.get(name, default)
    if not isinstance(value, str):
        raise wrong_setting(where, f"{name} is not a text in quotes")
    return value


def texts(
    found: Mapping[str, Any], name: str, where: str, default: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a list of texts; raises ``BuilderError``, also for a single text."""
    value = found.get(name, default)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise wrong_setting(where, f'{name} is not a list, such as ["one", "two"]')
    if not all(isinstance(each, str) for each in value):
        raise wrong_setting(where, f"{name} is not a list of texts")
    return tuple(value)


def flag(found: Mapping[str, Any], name: str, where: str, *, default: bool = False) -> bool:
    """Return a boolean; raises ``BuilderError``, also for texts such as "false"."""
    value = found.get(name, default)
    if not isinstance(value, bool):
        raise wrong_setting(where, f"{name} is neither true nor false")
    return value


def sections(found: Mapping[str, Any], name: str, where: str) -> Sequence[Mapping[str, Any]]:
    """Return a list of sections; raises ``BuilderError``."""
    value = found.get(name, ())
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise wrong_setting(where, f"{name} is not a list of sections")
    return [check_section(each, None, f"{where} {name}") for each in value]


def check_limit(name: str, value: object, where: str) -> None:
    """Check a limit: seconds may have a fraction, everything else is a number of things.

    Raises:
        BuilderError: it is no such number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_setting(where, f"{name} is no number")
    if name.endswith("_s"):
        if not 0 <= value < math.inf:
            raise wrong_setting(where, f"{name} is not a number of seconds")
        return
    least = 0 if name.startswith("keep") else 1
    if not isinstance(value, int) or value < least:
        raise wrong_setting(where, f"{name} is not a whole number of at least {least}")


def check_private(path: Path, where: str) -> None:
    """Check the file of a secret.

    Raises:
        BuilderError: every user of the machine may read, or change, it.
        OSError: there is no such file.
    """
    if path.stat().st_mode & 0o007:
        raise wrong_setting(where, f"every user may read {path}: chmod 600")
