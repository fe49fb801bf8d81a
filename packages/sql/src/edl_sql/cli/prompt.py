"""The prompt of ``edl sql``: statements are typed, and run at their semicolons."""

from __future__ import annotations

from collections.abc import Callable

from edl.plugins.commands import terminal
from edl_sql.zoos import MODELS

_FIRST, _NEXT = "edl> ", "...> "
_LEAVE = ("exit", "quit", "\\q", ".exit", ".quit")
_ASK = ("help", "?", "\\h", "\\?", ".help")
_OF_SHELLS = ("\\", ".")
"""What commands of psql and sqlite3 begin with; they end with their line."""
_HELP = """\
SELECT … TRAIN model WITH name=value, … COLUMN a, b LABEL c INTO name;   train a model
SELECT … TO EVALUATE name LABEL c INTO table;                            measure it
SELECT … PREDICT table.column USING name;                                predict a column
SELECT … TO EXPLAIN name INTO table;                                     what it goes by
SHOW MODELS;  DESCRIBE name;  SHOW TRAIN name;  DROP MODEL name;         which models there are
SHOW TABLES;  DESCRIBE table;  SELECT …;                                 tables, columns, rows
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
            text = f"{text}\n{line}" if text else _translate(line.lstrip())
            if is_complete(text) or text.startswith(_OF_SHELLS):
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


def _translate(line: str) -> str:
    """Return the statement that a command of psql or sqlite3 means, and any other line as it is."""
    command, _, name = line.rstrip("; ").partition(" ")
    match command:
        case ".tables" | "\\dt" | "\\d" if not name:
            return "SHOW TABLES;"
        case "\\d" | ".schema" if name:
            return f"DESCRIBE {name};"
        case _:
            return line


def _keep_history() -> Callable[[str], None]:
    """Let the prompt edit and recall; return what adds whole statements to the history."""
    try:
        import readline
    except ImportError:
        return lambda _: None
    readline.set_auto_history(False)
    return readline.add_history
