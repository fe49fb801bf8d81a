"""Messages on stderr and results on stdout."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

_BOLD, _RED, _YELLOW, _DIM, _PLAIN = "\033[1m", "\033[1;31m", "\033[33m", "\033[2m", "\033[0m"


def may_animate(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a display that redraws itself makes sense there."""
    return stream.isatty() and environ.get("TERM", "") != "dumb"


def may_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Colours only on a terminal, and never against NO_COLOR (no-color.org)."""
    return may_animate(stream, environ) and not environ.get("NO_COLOR")


def message(text: str) -> None:
    """A line or more for the person, on stderr."""
    with contextlib.suppress(OSError):  # there is nowhere left to say so
        print(_printable(text, sys.stderr), file=sys.stderr, flush=True)


def warning(text: str) -> None:
    """A warning, on stderr."""
    message(_painted(_YELLOW, "warning: ") + text)


def error(lines: Iterable[str]) -> None:
    """An error; its first line is the heading."""
    first, *rest = lines
    message(_painted(_RED, "error: ") + first)
    for line in rest:
        message(_painted(_DIM, line) if line.startswith("  |") else line)


def heading(text: str) -> str:
    """The text in bold, if the terminal has colours."""
    return _painted(_BOLD, text)


def result(text: str) -> None:
    """A result, on stdout."""
    try:
        print(_printable(text, sys.stdout), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def _printable(text: str, stream: TextIO) -> str:
    """The text as a stream can show it: it may be ASCII, and a file's name may be no UTF-8."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _painted(code: str, text: str) -> str:
    return f"{code}{text}{_PLAIN}" if may_colour(sys.stderr) else text
