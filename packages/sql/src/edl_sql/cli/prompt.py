"""The prompt of ``edl sql``: statements are typed, and run at their semicolons."""

from __future__ import annotations

from collections.abc import Callable

from edl.plugins.commands import terminal
from edl_sql.zoos import MODELS

_FIRST, _NEXT = "edl> ", "...> "
_LEAVE = ("exit", "quit", "\\q")
_ASK = ("help", "?", "\\h", "\\?")
_HELP = """\
SELECT … TRAIN model WITH name=value, … COLUMN a, b LABEL c INTO name;   train a model
SELECT … TO EVALUATE name LABEL c INTO table;                            measure it
SELECT … PREDICT table.column USING name;                                predict a column
SELECT … TO EXPLAIN name INTO table;                                     what it goes by
SHOW MODELS;  DESCRIBE name;  SHOW TRAIN name;  DROP MODEL name;         what there is
SELECT …;                                                                show rows
exit                                                                     or Ctrl-D

The models are {models}.
Statements run at their semicolons; Ctrl-C drops what is typed, or ends what runs."""


def read_statements(is_complete: Callable[[str], bool], run: Callable[[str], None]) -> None:
    """Read statements and run them until the input ends; an error ends only its statement.

    Ctrl-C drops what has been typed since the last semicolon, or ends what runs.

    Args:
        is_complete: whether a text ends with a statement's semicolon.
        run: carries out complete statements.
    """
    from edl.plugins.commands import show

    remember = _keep_history()
    text = ""
    while True:
        try:
            line = input(_NEXT if text else _FIRST)
            if not text and line.strip().rstrip(";").lower() in _LEAVE:
                return
            if not text and line.strip().rstrip(";").lower() in _ASK:
                terminal.result(_HELP.format(models=", ".join(MODELS)))
                continue
            text = f"{text}\n{line}" if text else line.lstrip()
            if is_complete(text):
                statements, text = text, ""
                remember(statements)
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


def _keep_history() -> Callable[[str], None]:
    """Let the prompt edit and recall; return what adds whole statements to the history."""
    try:
        import readline
    except ImportError:
        return lambda _: None
    readline.set_auto_history(False)
    return readline.add_history
