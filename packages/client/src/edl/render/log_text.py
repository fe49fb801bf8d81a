"""Lines of logs, for people and as data."""

from __future__ import annotations

from typing import Any

from edl.core.job_log import JobLogLine
from edl_runtime.timestamps import rfc3339

_ROLES = {"master": ("cyan",), "server": ("magenta",), "worker": ("green", "blue")}
_LEVELS = {"DEBUG": "dim", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


def log_line_parts(line: JobLogLine, *, single: bool) -> list[str | tuple[str, str]]:
    """Return the parts of a line: source, time in UTC, level unless it is INFO, message.

    Args:
        single: all lines have one source, which is left out.

    Returns:
        Texts, alone or each with a color; a source has the same one in all its lines.
    """
    parts: list[str | tuple[str, str]] = []
    if not single:
        role, _, number = line.source.partition(" ")
        colors = _ROLES.get(role, ("cyan",))
        color = colors[int(number) % len(colors)] if number.isdecimal() else colors[0]
        parts += [(f"[{line.source}]", color), " "]
    if line.entry is None:
        return [*parts, line.text]
    entry = line.entry
    parts += [(rfc3339(entry.at_s)[11:-1], "dim"), " "]
    if entry.level != "INFO":
        parts += [(f"{entry.level.lower()}:", _LEVELS.get(entry.level, "dim")), " "]
    return [*parts, "\n".join(entry.lines())]


def log_line_object(line: JobLogLine, job: str) -> dict[str, Any]:
    """Return a line as an object; what libraries or model files print has no level or logger."""
    role, _, number = line.source.partition(" ")
    source: dict[str, Any] = {"job": job, "role": role}
    if number.isdecimal():
        source[role] = int(number)
    entry = line.entry
    if entry is None:
        time = {"time": rfc3339(line.at_s)} if line.at_s else {}
        return {**time, "message": line.text, **source}
    # A model file can print such a line: whose log it is in counts, not whose it says it is.
    facts = {name: fact for name, fact in entry.facts.items() if name not in source}
    fields: dict[str, Any] = {
        "time": rfc3339(entry.at_s),
        "level": entry.level,
        "logger": entry.logger,
        "message": entry.message,
        **source,
        **facts,
    }
    if entry.exception:
        fields["exception"] = entry.exception
    return fields
