"""The magics ``%edl``, ``%%edl`` and ``%%edl_sql``, which ``%load_ext elasticdl`` adds to IPython.

Each runs a command of ``edl`` in the kernel's process, as the shell would: the same options,
messages and errors. An error ends the cell with the command's own text; ``_exit_code`` has the
exit code, and ``_edl`` the result of the last command.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from edl import codec
from edl.api_errors import as_python_error
from edl.cli.output import Receiver, results_to
from edl.cli.root import root
from edl.core.exit_codes import present
from edl.core.exit_numbers import INTERRUPTED
from edl.core.problem import usage
from edl.render import terminal
from edl.render.errors import known_error
from edl.render.job_text import failure_lines
from edl.render.notebook_display import in_notebook
from edl.render.row_table import make_table
from edl_proto.errors import EdlError
from edl_proto.printable import visible

CELLS = "edl_cells"
"""The folder, beside the notebook, of the model files that cells are."""

MODELS = "edl_models"
"""The folder, beside the notebook, of what cells without ``--output`` train."""

_MODULE = "cell"
_HEADING = "\033[1;31merror:\033[0m "


def load_magics(shell: Any) -> None:
    """Add the magics to an IPython shell.

    Raises:
        EdlError: this is no shell of IPython.
    """
    if not hasattr(shell, "register_magic_function"):
        problem = usage(
            "the magics of edl work in IPython and in notebooks only",
            where="load_ipython_extension",
            remedy="Write %load_ext elasticdl into a cell. In a program, call elasticdl.train or"
            " elasticdl.fit.",
        )
        raise as_python_error(codec.error_of(problem))
    magics = Magics(shell)
    shell.register_magic_function(magics.run_edl, magic_kind="line_cell", magic_name="edl")
    shell.register_magic_function(magics.run_sql, magic_kind="cell", magic_name="edl_sql")
    shell.set_custom_exc((EdlError,), _show_error)


class Magics:
    """The magics of one IPython shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def run_edl(self, line: str, cell: str | None = None) -> None:
        """Run a command of edl: ``%edl status NAME``.

        As the first line of a cell, ``%%edl train --data …``, it trains the model file that the
        rest of the cell is. A line that ends with a backslash goes on in the next one.
        """
        with self._errors_as_output():
            if cell is None:
                self._run(_split(line), self._keep)
                return
            line, cell, count = self._join_lines(line, cell)
            args = _split(line)
            command = None if _asks_for_help(args) else _find_command(args)
            if command is not None:
                _check_cell(command, args, cell)
                args += ["--model-zoo", str(_write_cell(cell, count))]
                if not _has_option(args, "--model-def"):
                    args += ["--model-def", _MODULE]
                takes_output = any(param.name == "output" for param in command.params)
                if takes_output and not _has_option(args, "--output"):
                    args += ["--output", str(_find_free_folder(Path(MODELS)))]
            self._run(args, self._keep)

    def run_sql(self, line: str, cell: str) -> Any:
        """Run the statements of a cell with ``edl sql``: ``%%edl_sql --db sqlite:///shop.db``.

        Returns:
            The rows of the last statement if it has some: a DataFrame where pandas is installed.
        """
        tables = _Tables()
        try:
            with self._errors_as_output():
                line, cell, _ = self._join_lines(line, cell)
                args = _split(line)
                if not _asks_for_help(args):
                    if not cell.strip():
                        what = "the cell has no statements"
                        remedy = "Write them below the first line. For example: SHOW TABLES;"
                        raise usage(what, where="%%edl_sql", remedy=remedy)
                    args += ["--execute", cell]
                self._run(["sql", *args], tables.take)
        except BaseException:
            tables.show()
            raise
        return tables.last

    def _join_lines(self, line: str, cell: str) -> tuple[str, str, int]:
        """Return the whole first line, the rest of the cell, and how many lines the first was."""
        count = 1
        while line.rstrip().endswith("\\"):
            more, _, cell = cell.partition("\n")
            line = f"{line.rstrip()[:-1]} {self._shell.var_expand(more)}"
            count += 1
        return line, cell, count

    def _keep(self, value: Any, lines: Sequence[str]) -> None:
        """Print a result, and keep it for the cells after this one."""
        self._shell.user_ns["_edl"] = value
        for line in lines:
            terminal.result(line)

    def _run(self, args: Sequence[str], receive: Receiver) -> None:
        """Run a command in this process.

        Args:
            receive: takes its results.

        Raises:
            _EndedCommand: it has printed why it did not succeed.
        """
        # A notebook shows all of stderr as an error, and messages are none.
        shown = (
            contextlib.redirect_stderr(sys.stdout) if in_notebook() else contextlib.nullcontext()
        )
        with shown, results_to(receive):
            answer = root.main(args=list(args), prog_name="edl", standalone_mode=False)
        if isinstance(answer, int) and answer:
            raise _EndedCommand(answer)

    @contextlib.contextmanager
    def _errors_as_output(self) -> Iterator[None]:
        """Raise errors of the context as exceptions that show what the command would print."""
        failed: BaseException | None = None
        code = 0
        try:
            yield
        except (KeyboardInterrupt, click.Abort):
            code, failed = INTERRUPTED, _showing(KeyboardInterrupt(), ["interrupted"])
        except _EndedCommand as end:
            code = end.code
            error = (
                KeyboardInterrupt() if code == INTERRUPTED else RuntimeError(f"exit code {code}")
            )
            failed = _showing(error, [str(error) or "interrupted"])
        except Exception as error:
            known = known_error(error)
            if known is not None:  # the help of a group is no error
                code = present(known.code_name).exit_code
                first, *lines = failure_lines(codec.failure_of(known))
                failed = _showing(as_python_error(known), [first, *lines], _HEADING)
        self._shell.user_ns["_exit_code"] = code
        if failed is not None:
            raise failed  # outside of the except clauses, so that there is no context


class _EndedCommand(Exception):
    """The end of a command that has said why it did not succeed."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _showing(error: BaseException, lines: Sequence[str], heading: str = "") -> BaseException:
    """Let IPython show lines for an error, and no frames of edl."""
    text = heading + visible("\n".join(lines))
    vars(error)["_render_traceback_"] = text.splitlines
    return error


def _show_error(
    shell: Any, kind: type, error: EdlError, trace: TracebackType, tb_offset: int | None = None
) -> None:
    """Show an error of the Python API from the caller's frames on.

    IPython leaves out frames that ask for it, but for the last one.
    """
    frames = [trace]
    while frames[-1].tb_next is not None:
        frames.append(frames[-1].tb_next)
    while len(frames) > 1 and "__tracebackhide__" in frames[-1].tb_frame.f_locals:
        frames.pop()
    shown = None
    for each in reversed(frames):
        shown = TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno)
    shell.showtraceback((kind, error, shown), tb_offset=tb_offset)


class _Tables:
    """The results of statements, shown in their order; the last rows become the cell's value.

    Attributes:
        last: rows that are not shown yet; None if something else came after them.
    """

    def __init__(self) -> None:
        self.last: Any = None

    def take(self, value: Any, lines: Sequence[str]) -> None:
        self.show()
        match value:
            case {"columns": [*columns], "rows": [*rows]}:
                self.last = make_table(columns, rows)
            case _:
                for line in lines:
                    terminal.result(line)

    def show(self) -> None:
        if self.last is not None:
            from IPython.display import display  # the magics have it

            display(self.last)
        self.last = None


def _split(line: str) -> list[str]:
    """Split a line into words as a shell does.

    Raises:
        Problem: a quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        what = f"the line cannot be split into words: {str(error).lower()}"
        raise usage(what, where=line.strip(), remedy="Close each quote.") from None


def _asks_for_help(args: Sequence[str]) -> bool:
    return "-h" in args or "--help" in args


def _has_option(args: Sequence[str], flag: str) -> bool:
    return any(arg.partition("=")[0].replace("_", "-") == flag for arg in args)


def _find_command(args: Sequence[str]) -> click.Command | None:
    """Return the command that a line calls; None if there is none, which running it tells.

    Raises:
        Problem: its package is not installed.
    """
    found: click.Command | None = root
    for word in args:
        if not isinstance(found, click.Group):
            break
        found = found.get_command(click.Context(found), word)
    return None if isinstance(found, click.Group) else found


def _check_cell(command: click.Command, args: Sequence[str], cell: str) -> None:
    """Check that a command takes a cell as its model file.

    Raises:
        Problem: it takes no model file, or has another one, or the cell is empty.
    """
    where = f"%%edl {' '.join(each for each in args[:2] if not each.startswith('-'))}"
    if not {"model_zoo", "model_def"} <= {param.name for param in command.params}:
        raise usage(
            f"edl {command.name} takes no model file, and the cell would be one",
            where=where,
            remedy=f"Write the command as a line, with one %: %edl {' '.join(args)}",
        )
    if _has_option(args, "--model-zoo"):
        raise usage(
            "the cell is the model file, so --model-zoo cannot be given",
            where="--model-zoo",
            remedy=f"Leave it out; or train the file with %edl {command.name}, in a line.",
        )
    if not cell.strip():
        raise usage(
            "the cell has no code",
            where=where,
            remedy="Write the model file below the first line; or train a file with"
            f" %edl {command.name} --model-zoo DIR --model-def NAME, in a line.",
        )


def _find_free_folder(place: Path) -> Path:
    """Return a folder below another one that does not exist yet, named by the next number."""
    names = [each.name for each in place.iterdir()] if place.is_dir() else []
    return place / str(1 + max((int(name) for name in names if name.isdecimal()), default=0))


def _write_cell(cell: str, count: int) -> Path:
    """Write the model file that a cell is, and return its folder: one for each content.

    So a job that is resumed finds its code again, though the cell has changed.

    Args:
        count: of the lines before the code, so that errors have the line numbers of the cell.

    Raises:
        OSError: it cannot be written.
    """
    text = "# The cell of a notebook.\n" + "#\n" * (count - 1) + cell
    folder = Path(CELLS) / f"{_MODULE}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    file = folder / f"{_MODULE}.py"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    terminal.result(f"the model file is {file}")
    return folder
