"""Prints results of commands, and errors as data for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import click

from edl import codec
from edl.cli.commands import argument, option
from edl.cli.completion import job_names
from edl.core.job_result import error_fields
from edl.render import terminal
from edl.render.errors import known_error
from edl.render.output_format import Format, dump

output_option = option(
    "--output-format",
    "-o",
    type=click.Choice(Format, case_sensitive=False),
    help="Format of the result.",
)
name_argument = argument("name", metavar="NAME", help="Name of a job.", shell_complete=job_names)
quiet_option = option("--quiet", "-q", is_flag=True, help="Print no messages except errors.")
no_input_option = option("--no-input", is_flag=True, help="Fail instead of asking for input.")

Receiver: TypeAlias = Callable[[Any, Sequence[str]], None]
"""Takes a result as a value, and as lines for people."""

_receiver: ContextVar[Receiver | None] = ContextVar("receiver of results", default=None)


@contextmanager
def errors_as_output(
    form: Format | None, shape: Callable[[dict[str, str]], Any] | None = None
) -> Iterator[None]:
    """Print errors within the context as objects, too, if the result would be one.

    Args:
        shape: makes the object of the error's fields; ``{"error": fields}`` by default.
    """
    try:
        yield
    except (KeyboardInterrupt, click.exceptions.Exit, GeneratorExit, BrokenPipeError):
        raise
    except Exception as error:
        if form is not None and form.is_structured:
            known = known_error(error)
            if known is not None:
                fields = error_fields(codec.failure_of(known))
                terminal.result(dump(shape(fields) if shape else {"error": fields}, form))
        raise


@contextmanager
def results_to(receive: Receiver) -> Iterator[None]:
    """Give results for people to a function, within the context, instead of printing them."""
    token = _receiver.set(receive)
    try:
        yield
    finally:
        _receiver.reset(token)


def print_result(
    value: Any, form: Format | None, lines: Sequence[str], names: Sequence[str] = ()
) -> None:
    """Print a result in the requested format.

    Args:
        value: for JSON and YAML.
        lines: for people.
        names: for ``-o name``.
    """
    match form:
        case Format.JSON | Format.YAML:
            terminal.result(dump(value, form))
        case Format.NAME:
            for name in names:
                terminal.result(name)
        case Format.WIDE | None:
            if (receive := _receiver.get()) is not None:
                receive(value, lines)
                return
            for line in lines:
                terminal.result(line)
