"""Everything that the command prints: messages on stderr and results on stdout.

No other module of the client prints, or makes what rich prints, so that here control characters in
texts of others are shown and not obeyed (``edl_proto.printable``).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TextIO

import click

from edl_proto.printable import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


_RED, _YELLOW, _DIM, _PLAIN = "\033[1;31m", "\033[33m", "\033[2m", "\033[0m"
_COLORS = {
    "red": _RED,
    "yellow": _YELLOW,
    "dim": _DIM,
    "green": "\033[32m",
    "blue": "\033[34m",
    "magenta": "\033[35m",
    "cyan": "\033[36m",
}


def may_animate(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a display that redraws itself makes sense there."""
    return stream.isatty() and environ.get("TERM", "") != "dumb"


def may_color(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a stream is a terminal, and NO_COLOR (no-color.org) allows colors."""
    return may_animate(stream, environ) and not environ.get("NO_COLOR")


def message(text: str) -> None:
    """Print a message of one or more lines on stderr."""
    _say(_printable(text, sys.stderr))


def warning(text: str) -> None:
    """Print a warning on stderr."""
    _say(_paint(_YELLOW, "warning: ") + _printable(text, sys.stderr))


def error(lines: Iterable[str]) -> None:
    """Print an error on stderr; its first line is the heading."""
    first, *rest = lines
    _say(_paint(_RED, "error: ") + _printable(first, sys.stderr))
    for line in rest:
        shown = _printable(line, sys.stderr)
        _say(_paint(_DIM, shown) if line.startswith("  |") else shown)


def result(*parts: str | tuple[str, str], colored: bool = False) -> None:
    """Print a result on stdout.

    Args:
        parts: texts, alone or each with its color.
        colored: whether colors are shown.

    Raises:
        OSError: it cannot be written. If no process reads it any more, this is a BrokenPipeError.
    """
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    shown = "".join(
        f"{_COLORS[color]}{_printable(text, sys.stdout)}{_PLAIN}"
        if color and colored
        else _printable(text, sys.stdout)
        for text, color in pairs
    )
    try:
        print(shown, flush=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def confirm(question: str) -> bool:
    """Ask the person, who answers yes or no; the end of stdin is a no.

    Raises:
        click.Abort: Ctrl-C.
    """
    try:
        return click.confirm(_printable(question, sys.stdout))
    except click.Abort as end:
        if isinstance(end.__context__, EOFError):
            return False
        raise


def console(stream: TextIO) -> Console:
    """Return the console of a display that redraws itself; ``style_text`` makes its texts."""
    from rich.console import Console

    return Console(file=stream, highlight=False)


def style_text(*parts: str | tuple[str, str]) -> Text:
    """Return a text for ``console``.

    Args:
        parts: texts, alone or each with its style.
    """
    from rich.text import Text

    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((visible(text), style) for text, style in pairs))


def _say(printable: str) -> None:
    with contextlib.suppress(OSError):  # there is nowhere left to say so
        print(printable, file=sys.stderr, flush=True)


def _printable(text: str, stream: TextIO) -> str:
    """Return the text as a stream can encode it: it may be ASCII, and a name no UTF-8."""
    text = visible(text)
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _paint(code: str, text: str) -> str:
    return f"{code}{text}{_PLAIN}" if may_color(sys.stderr) else text
