"""Prints results of commands, and errors as data for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from edl.cli.completion import job_names
from edl.render import terminal
from edl.render.output_format import Format, dump

Output = Annotated[
    Format | None,
    typer.Option("--output-format", "-o", help="Format of the result."),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of a job.", show_default=False, autocompletion=job_names
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no messages except errors.")]
PasswordFile = Annotated[
    str,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File whose first line is the database's password. [default: EDL_DATABASE_PASSWORD, "
        "~/.pgpass, ~/.my.cnf]",
    ),
]
NoInput = Annotated[bool, typer.Option("--no-input", help="Fail instead of asking for input.")]


@contextmanager
def errors_as_output(
    form: Format | None, shape: Callable[[dict[str, str]], Any] | None = None
) -> Iterator[None]:
    """A context in which an error is also printed as an object if the result would be one.

    Args:
        shape: makes the object of the error's fields; ``{"error": fields}`` by default.
    """
    try:
        yield
    except (KeyboardInterrupt, typer.Exit, GeneratorExit, BrokenPipeError):
        raise
    except Exception as error:
        if form is not None and form.is_structured:
            from edl import codec
            from edl.core.job_result import error_fields
            from edl.render.errors import known_error

            known = known_error(error)
            if known is not None:
                fields = error_fields(codec.failure_of(known))
                terminal.result(dump(shape(fields) if shape else {"error": fields}, form))
        raise


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
            for line in lines:
                terminal.result(line)
