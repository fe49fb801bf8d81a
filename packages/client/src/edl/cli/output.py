"""How every command puts out its result, and its error where a program reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from edl.render import terminal
from edl.render.output_format import Format, dump

Output = Annotated[
    Format | None,
    typer.Option("--output-format", "-o", help="Form of the result."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a job.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No messages; errors are still told.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Never ask; fail instead.")]


@contextmanager
def reporting(
    form: Format | None, shape: Callable[[dict[str, str]], Any] | None = None
) -> Iterator[None]:
    """Within, an error is also put out as an object if the result would have been one.

    Args:
        shape: makes the object of the error's fields; ``{"error": fields}`` by default.
    """
    try:
        yield
    except (KeyboardInterrupt, typer.Exit, GeneratorExit):
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


def put(value: Any, form: Format | None, lines: Sequence[str], names: Sequence[str] = ()) -> None:
    """Put out a result in the form asked for.

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
