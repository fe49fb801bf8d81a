"""Options of commands, made from the table of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from edl.cli.commands import Decorator, option
from edl.cli.completion import one_of
from edl.core.options import Given, Option
from edl.core.options.kubernetes_value_types import Pairs
from edl.core.options.value_types import Choice, Flag, Names, Params, Texts

_ADD_UP = Pairs | Params | Names
"""Kinds whose values are separated by commas."""


def takes(options: Sequence[Option]) -> Decorator:
    """Return a decorator that adds options to a command."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(options):
            function = declare(each)(function)
        return function

    return decorate


def declare(each: Option) -> Decorator:
    """Return a decorator that adds an option, whose own kind reads its text later."""
    default = each.shown_default
    settings: dict[str, Any] = {
        "help": each.help if default in ("", "no") else f"{each.help} [default: {default}]",
        "section": each.section,
        "default": None,
    }
    flag = each.flag
    if isinstance(each.kind, Flag):
        settings["is_flag"] = True
        if each.default:
            flag += f"/--no-{each.key}"
    else:
        settings["metavar"] = each.kind.metavar
        settings["multiple"] = isinstance(each.kind, Texts | _ADD_UP)
        if isinstance(each.kind, Choice):
            settings["shell_complete"] = one_of(each.kind.values)
    return option(each.name, flag, *filter(None, [each.short]), **settings)


def find_given(options: Iterable[Option], values: Mapping[str, Any]) -> dict[str, Given]:
    """Return the options that the user set on the command line, of the values of all parameters."""
    return {
        # What is separated by commas adds up: none of several options may get lost.
        each.name: Given(
            ",".join(filter(None, value)) if isinstance(each.kind, _ADD_UP) else value, each.flag
        )
        for each in options
        if (value := values.get(each.name)) not in (None, ())
    }
