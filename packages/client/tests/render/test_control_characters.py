"""What others wrote cannot command the terminal, whichever way it is printed."""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import edl
from edl.core.image_build import BuildStatus
from edl.core.job_log import JobLogLine
from edl.core.job_status import Failure, JobEvent, JobState, JobStatus, WorkerStatus
from edl.core.options import Verb
from edl.render import errors, job_text, terminal
from edl.render.build_display import LiveBuild, PlainBuild
from edl.render.live_display import LiveDisplay
from edl.render.log_text import log_line_parts
from edl.render.table import table
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.monitoring.log_lines import LogEntry

TITLE = "\x1b]0;owned\x07"
SHOWN = "\\x1b]0;owned\\x07"

PRINTS = {"print", "echo", "secho", "confirm", "prompt", "launch", "pprint", "print_exception"}
CLASSES = {"Console", "Text"}
PRINTER = Path("render/terminal.py")
WITHOUT_TEXTS_OF_OTHERS = {
    Path("adapters/local/machine_diagnostics.py"): "a program of its own, which answers in JSON",
}


class Tty(io.StringIO):
    """A terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tty]:
    """Standard output and error as a terminal with colors."""
    tty = Tty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with contextlib.redirect_stdout(tty), contextlib.redirect_stderr(tty):
        yield tty


def test_messages_results_and_errors_show_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with screen(monkeypatch) as tty:
        terminal.message(TITLE)
        terminal.warning(TITLE)
        terminal.result(TITLE)
        errors.show(EdlError(ErrorCode.INTERNAL, TITLE, where=TITLE, remedy=TITLE, detail=TITLE))
    assert TITLE not in tty.getvalue()
    assert tty.getvalue().count(SHOWN) == 7
    assert "\x1b[33mwarning: \x1b[0m" in tty.getvalue(), "edl's own colors stay"


def test_displays_show_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    with screen(monkeypatch) as tty:
        live, build, plain = LiveDisplay(), LiveBuild(every_line=True), PlainBuild(every_line=True)
        live.say(TITLE)
        live.show_event(JobEvent(1, "", 0.0, "StopRequested", "warning", TITLE))
        build.line(TITLE)
        build.say(TITLE)
        build.update(BuildStatus("7", "building"))
        build.close()
        plain.line(TITLE)
        plain.say(TITLE)
    assert TITLE not in tty.getvalue()
    assert tty.getvalue().count(SHOWN) == 5


FORGED = "bad\n13:00:00 JobSucceeded: fine\nerror: forged\n[master] forged"


def test_no_text_of_others_adds_a_line_of_its_own() -> None:
    """A name, a reason, a place or a message is one line, or its further lines are indented."""
    worker = WorkerStatus(0, "working", task=FORGED, last_exit=FORGED, pending=FORGED)
    status = JobStatus(
        job="job",
        verb=Verb.TRAIN,
        state=JobState.RUNNING,
        output=FORGED,
        metrics={FORGED: 1.0},
        warnings=(FORGED,),
        workers=(worker,),
        dead_letters=(FORGED,),
        table_rows={FORGED: 3},
    )
    over = replace(status, state=JobState.SUCCEEDED)
    entry = LogEntry(0.0, "ERROR", "x", FORGED, {}, FORGED)
    (log,) = log_line_parts(JobLogLine("worker 0", FORGED, entry=entry), single=True)[-1:]
    shown = [
        *job_text.status_lines(status),
        *job_text.summary(over),
        *(line for row in job_text.outcome(over) for line in row),
        *table(("NAME",), [(FORGED,)]),
        job_text.event_line(JobEvent(1, "", 0.0, FORGED, FORGED, FORGED)),
        *job_text.failure_lines(Failure("INTERNAL", FORGED, FORGED, FORGED, FORGED)),
        str(EdlError(ErrorCode.INTERNAL, FORGED, where=FORGED, remedy=FORGED)),
    ]
    own = "13:00", "[master]"  # how lines of events and of logs begin
    lines = "\n".join(shown).split("\n")
    assert not [line for line in lines if line.startswith((*own, "error: forged"))]
    assert not [line for line in str(log).split("\n") if line.startswith(own)]


def test_a_line_without_end_fits_a_screen() -> None:
    endless = "x" * 10_000_000
    failure = Failure("INTERNAL", endless, endless, endless, endless)
    shown = [
        *job_text.failure_lines(failure),
        job_text.event_line(JobEvent(1, "", 0.0, "JobFailed", "error", endless)),
    ]
    assert max(map(len, shown)) < 1100


def test_a_question_shows_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with screen(monkeypatch) as tty:
        assert terminal.confirm(f"Delete {TITLE}?")
    assert TITLE not in tty.getvalue()


def test_the_end_of_stdin_answers_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with screen(monkeypatch):
        assert not terminal.confirm("Delete it?")


def test_nothing_else_prints() -> None:
    root = Path(edl.__file__).parent
    found = {
        f"{path.relative_to(root)}:{line}: {what}"
        for path in root.rglob("*.py")
        if path.relative_to(root) not in (PRINTER, *WITHOUT_TEXTS_OF_OTHERS)
        for line, what in _ways_to_print(ast.parse(path.read_text()))
    }
    assert not found, "print with edl.render.terminal"


def test_the_search_finds_every_way_to_print() -> None:
    ways = """
print(1)
click.echo("x")
click.confirm("x")
sys.stdout.write("x")
sys.stderr.buffer.write(b"x")
os.write(2, b"x")
from rich.console import Console
from rich import print
import rich.text
"""
    lines = {line for line, _ in _ways_to_print(ast.parse(ways))}
    assert lines == set(range(2, 11))


def _ways_to_print(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in PRINTS:
                yield node.lineno, name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if (
                name in PRINTS and module != "terminal"
            ):
                yield node.lineno, f"{module}.{name}"
            case ast.Call(func=ast.Attribute(value=value, attr="write" | "writelines")) if (
                "sys.std" in ast.unparse(value) or ast.unparse(value) == "os"
            ):
                yield node.lineno, ast.unparse(node.func)
            case ast.ImportFrom(module=module, names=names) if (module or "").startswith("rich"):
                wrong = {each.name for each in names} & (CLASSES | PRINTS)
                if wrong:
                    yield node.lineno, f"{module}.{wrong}"
            case ast.Import(names=names):
                for each in names:
                    if each.name.startswith("rich"):
                        yield node.lineno, each.name
