"""Writes and parses lines of a log, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from edl_proto.printable import indent, visible
from edl_runtime.timestamps import parse_rfc3339, rfc3339

FORMAT_VARIABLE, JSON = "EDL_LOG_FORMAT", "json"
"""The variable that names the form of a process's log, text by default; and the value that
containers get unless the user has set another."""

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""From the least to the most severe."""

_LETTERS = {level[0]: level for level in LEVELS}
_TEXT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<level>[DIWEC])"
    r"(?: \[(?P<facts>[\w-]+=[^\s\]]+(?: [\w-]+=[^\s\]]+)*)\])?"
    r" (?P<logger>[\w.-]+): (?P<message>.*)",
    re.DOTALL,
)
_NUMBER = re.compile("[0-9]{1,18}")
"""Of a fact: Python reads no number of thousands of digits, which a worker may write."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of the log of a process.

    Attributes:
        at_s: when, in seconds since the epoch.
        level: one of ``LEVELS``.
        logger: name of the logger, which is that of a module.
        facts: whose line it is: ``job``, ``role``, ``worker``, ``task`` and others. The values of
            a line that was read are texts or numbers; texts have no white space.
        exception: the traceback of an exception.
    """

    at_s: float
    level: str
    logger: str
    message: str
    facts: Mapping[str, str | int] = field(default_factory=dict)
    exception: str = ""

    def lines(self) -> list[str]:
        """Return the lines of the message and of the exception below it.

        Further lines are indented where they could pass for a line of the program or of another
        process: their text may be that of others, as the name of a file.
        """
        return [*indent(self.message).split("\n"), *map(_below, self.exception.splitlines())]


def as_text(line: LogEntry) -> str:
    """Return one line for people, and the exception below it, without control characters."""
    facts = " ".join(f"{name}={value}" for name, value in line.facts.items())
    start = f"{rfc3339(line.at_s)} {line.level[0]}{f' [{facts}]' if facts else ''}"
    first, *further = line.lines()
    return visible("\n".join((f"{start} {line.logger}: {first}", *further)))


def as_json(line: LogEntry) -> str:
    """Return one JSON object on one line for programs; control characters are escaped."""
    fields: dict[str, str | int] = {
        "time": rfc3339(line.at_s),
        "level": line.level,
        "logger": line.logger,
        "message": line.message,
        **line.facts,
    }
    if line.exception:
        # Last: if the beginning of the line is cut off, the end of the traceback is left.
        fields["exception"] = line.exception
    # JSON leaves some control characters as they are; as \uXXXX it reads them back unchanged.
    return visible(json.dumps(fields, ensure_ascii=False))


def parse(line: str) -> LogEntry | None:
    """Read a line in either form; None if it is in neither, as what a library prints."""
    if line.startswith("{"):
        return _parse_json(line)
    found = _TEXT.fullmatch(line)
    if found is None:
        return None
    at_s = parse_rfc3339(found["time"])
    if at_s is None:
        return None
    pairs = (each.split("=", 1) for each in (found["facts"] or "").split())
    facts = {name: int(value) if _NUMBER.fullmatch(value) else value for name, value in pairs}
    return LogEntry(at_s, _LETTERS[found["level"]], found["logger"], found["message"], facts)


def readable(log: str) -> str:
    """Make a part of a log readable for people: lines of JSON become text, others stay."""
    result: list[str] = []
    for line in log.splitlines():
        if line.startswith("{") and (found := parse(line)) is not None:
            result.extend(as_text(found).splitlines())
        elif not result and line.endswith('"}') and (rest := _end_of_exception(line)):
            result.extend(visible(rest).splitlines())
        else:
            result.append(line)
    return "\n".join(result)


def _below(line: str) -> str:
    """Return a line of an exception, which must not look like one with a source or a time."""
    return f"    {line}" if line[:1] in ("[", "{", *"0123456789") else line


def _parse_json(line: str) -> LogEntry | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match fields:
        case {"time": str(time), "level": str(level), "message": str(message), **more}:
            at_s = parse_rfc3339(time)
        case _:
            return None
    if at_s is None or (level := level.upper()) not in LEVELS:
        return None
    logger, exception = str(more.pop("logger", "")), str(more.pop("exception", ""))
    facts = {
        str(name): value if isinstance(value, int) else str(value) for name, value in more.items()
    }
    return LogEntry(at_s, level, logger, message, facts, exception)


def _end_of_exception(line: str) -> str:
    """Return what is left of the exception in a line of JSON whose beginning was cut off.

    Kubernetes keeps the last 2 KiB of the output of a container that has failed.
    """
    text = line.rpartition('"exception": "')[2].removesuffix('"}')
    for start in range(min(6, len(text))):  # an escape may be cut, and has six characters at most
        try:
            found = json.loads(f'"{text[start:]}"')
        except ValueError:
            continue
        return str(found)
    return ""
