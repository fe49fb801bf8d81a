"""The prompt of ``edl sql``: statements are typed, and run at their semicolons."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from edl.plugins.commands import terminal

_FIRST, _NEXT = "edl> ", "...> "
_LEAVE = ("exit", "quit", "\\q")


def read_statements(is_complete: Callable[[str], bool], run: Callable[[str], None]) -> None:
    """Read statements and run them until the input ends; an error ends only its statement.

    Ctrl-C drops what has been typed since the last semicolon, or ends what runs.

    Args:
        is_complete: whether a text ends with a statement's semicolon.
        run: carries out complete statements.
    """
    from edl.plugins.commands import show

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (its import lets the prompt edit lines and recall them)
    text = ""
    while True:
        try:
            line = input(_NEXT if text else _FIRST)
            if not text and line.strip().rstrip(";").lower() in _LEAVE:
                return
            text = f"{text}\n{line}" if text else line.lstrip()
            if is_complete(text):
                statements, text = text, ""
                run(statements)
        except EOFError:
            terminal.result("")
            return
        except KeyboardInterrupt:
            text = ""
            terminal.result("")
        except Exception as error:
            text = ""
            show(error)
