"""Translates the names of options and commands in texts into those of the Python API."""

from __future__ import annotations

import re
from collections.abc import Collection

from edl.core.options.table import BY_NAME
from edl.core.options.value_types import Flag

_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"')]*[^\s"',;.:)])"""
_TEXT = re.compile(
    r"\bedl (?P<function>train|evaluate|predict|resume|export)\b"
    r"|(?P<command>\b(?:edl|pip|docker|kubectl) [a-z][^.,;:]*)"
    r"|--(?P<flag>[a-z][a-z0-9-]*)"
)
_HELP, _EXAMPLE = " --help", "For example: "
_JOB = re.compile(rf" (?!--)(?P<value>{_VALUE})")
_ARGUMENT = re.compile(r" --(?P<flag>[a-z][a-z0-9-]*)")
_ARGUMENT_VALUE = re.compile(rf"[ =](?!--)(?P<value>{_VALUE})")
_SURE_VALUE = re.compile(r"[\"'\d/*=:]|^[A-Z|]+$")
"""Tells a value from the next word of a sentence."""


def translate(text: str, given: Collection[str] = ()) -> str:
    """Return a text with ``num_workers=4`` for ``--num-workers 4``, and calls for commands.

    Commands that Python has no call for stay as they are.

    Args:
        given: names of arguments that the caller used, right or wrong.
    """
    parts, at = [], 0
    while (found := _TEXT.search(text, at)) is not None:
        parts.append(text[at : found.start()])
        at = found.end()
        if (function := found["function"]) and text.startswith(_HELP, at):
            parts.append(f"help(elasticdl.{function})")
            at += len(_HELP)
        elif function:
            call, at = _read_call(text, at, is_about_job=function in ("resume", "export"))
            parts.append(f"elasticdl.{function}{call}")
        elif flag := found["flag"]:
            name = flag.replace("-", "_")
            positive = name.removeprefix("no_")
            if name not in BY_NAME and _is_flag(positive):
                parts.append(f"{positive}={name == positive}")
                continue
            if name not in BY_NAME and name not in given:
                parts.append(found[0])
                continue
            if _is_flag(name) and parts[-1].endswith(_EXAMPLE):
                parts.append(f"{name}=True")
                continue
            value = None if _is_flag(name) else _ARGUMENT_VALUE.match(text, at)
            if value is not None and (
                _SURE_VALUE.search(value["value"])
                or (name in BY_NAME and value["value"] == BY_NAME[name].example)
            ):
                at = value.end()
                parts.append(f"{name}={_literal(value['value'])}")
            else:
                parts.append(name)
        else:
            parts.append(found[0])
    return "".join((*parts, text[at:]))


def _read_call(text: str, at: int, *, is_about_job: bool) -> tuple[str, int]:
    """Return the arguments of a call as Python, in parentheses, and where they end in the text.

    Nothing is returned if there are none.
    """
    arguments = []
    if is_about_job and (job := _JOB.match(text, at)):
        arguments.append(_literal(job["value"]))
        at = job.end()
    while flag := _ARGUMENT.match(text, at):
        name, at = flag["flag"].replace("-", "_"), flag.end()
        value = None if _is_flag(name) else _ARGUMENT_VALUE.match(text, at)
        at = value.end() if value else at
        arguments.append(f"{name}={_literal(value['value']) if value else True}")
    return (f"({', '.join(arguments)})" if arguments else ""), at


def _is_flag(name: str) -> bool:
    return name == "overwrite" or (name in BY_NAME and isinstance(BY_NAME[name].kind, Flag))


def _literal(value: str) -> str:
    """Return a value of the command line as Python; placeholders such as DIR stay."""
    if value[0] in "\"'" or re.fullmatch(r"\d+(\.\d+)?|[A-Z]+", value):
        return value
    return f'"{value}"'
