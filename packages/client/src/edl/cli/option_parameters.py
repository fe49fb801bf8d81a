"""Parameters of commands, made from the table of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, cast

import typer

from edl.cli.completion import one_of
from edl.core.options import Given, Option
from edl.core.options.cluster_kinds import Pairs
from edl.core.options.kinds import Choice, Flag, Names, Params, Texts

Command = Callable[..., None]

_ADD_UP = Pairs | Params | Names
"""Kinds whose values are separated by commas."""


def parameter(option: Option) -> inspect.Parameter:
    """How a command takes an option: as text, which the option's own kind reads later."""
    default = option.shown_default
    shown = option.help if default in ("", "no") else f"{option.help} [default: {default}]"
    settings: dict[str, Any] = {"help": shown, "rich_help_panel": option.section}
    declared = option.flag
    wanted: Any = str | None
    if isinstance(option.kind, Flag):
        wanted = bool | None
        if option.default:
            declared += f"/--no-{option.key}"
    else:
        settings["metavar"] = option.kind.metavar
        if isinstance(option.kind, Choice):
            settings["autocompletion"] = one_of(option.kind.values)
        if isinstance(option.kind, Texts | _ADD_UP):
            wanted = list[str] | None
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[wanted, typer.Option(declared, **settings)],
    )


def given(options: Iterable[Option], values: Mapping[str, Any]) -> dict[str, Given]:
    """The options that the user set on the command line, of the values of all parameters."""
    return {
        # What is separated by commas adds up: none of several options may get lost.
        option.name: Given(
            ",".join(filter(None, value)) if isinstance(option.kind, _ADD_UP) else value,
            option.flag,
        )
        for option in options
        if (value := values.get(option.name)) not in (None, [])
    }


def takes(options: Iterable[Option], **others: tuple[Any, Any]) -> Callable[[Command], Command]:
    """Decorate a function that takes ``**values`` with the parameters of a command.

    Args:
        options: come behind the parameters that the function declares itself.
        others: annotation and default of parameters besides the options, by name.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        *(parameter(option) for option in options),
        *(
            inspect.Parameter(name, keyword, default=default, annotation=annotation)
            for name, (annotation, default) in others.items()
        ),
    ]

    def decorate(function: Command) -> Command:
        declared = inspect.signature(function, eval_str=True).parameters.values()
        own = [each for each in declared if each.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters = [*own, *added]
        # inspect reads the attribute, of which the type of functions knows nothing.
        cast(Any, function).__signature__ = inspect.Signature(parameters)
        function.__annotations__ = {item.name: item.annotation for item in parameters}
        return function

    return decorate
