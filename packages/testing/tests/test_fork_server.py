"""A fork looks to its caller like a process of an interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edl_testing.fork_server import find_fork, forking_python
from edl_testing.waiting import eventually

LIBRARY = """
import os
IMPORTED_BY = os.getpid()
"""
PROGRAM = """
import json, os, sys, time
import slow_library
facts = {"pid": os.getpid(), "forked": slow_library.IMPORTED_BY == os.getppid()}
facts |= {"umask": os.umask(0)}
facts |= {"arguments": sys.argv[1:], "cwd": os.getcwd(), "mine": os.environ.get("MINE")}
print(json.dumps(facts), flush=True)
match sys.stdin.readline().split():
    case ["exit", code]:
        sys.exit(int(code))
    case ["fail"]:
        raise ValueError("as asked")
    case ["wait"]:
        time.sleep(600)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("modules")
    (place / "slow_library.py").write_text(LIBRARY)
    (place / "program.py").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(place))
        with forking_python(["other", "program"], ["slow_library"]) as found:
            yield found


@pytest.fixture
def start(interpreter: str, tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **environ: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [interpreter, *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            cwd=tmp_path,
            umask=0o27,
            env={**os.environ, **environ},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def facts_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    facts: dict[str, Any] = json.loads(process.stdout.readline())
    return facts


def order(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def test_a_fork_has_arguments_environment_folder_and_streams(start: Start, tmp_path: Path) -> None:
    process = start("-P", "-m", "program", "--a", "b", MINE="x")
    facts = facts_of(process)
    assert facts.pop("pid") != process.pid
    assert facts.pop("umask") == 0o27
    assert facts == {"forked": True, "arguments": ["--a", "b"], "cwd": str(tmp_path), "mine": "x"}
    order(process, "exit 7")
    assert process.wait(60) == 7


def test_the_next_fork_has_nothing_of_the_one_before(start: Start) -> None:
    for mine in ("x", "y"):
        process = start("-m", "program", **{"MINE": mine} if mine == "x" else {})
        assert facts_of(process)["mine"] == ("x" if mine == "x" else None)


def test_an_exception_is_an_exit_code_and_a_traceback(start: Start) -> None:
    process = start("-m", "program")
    _, err = process.communicate("fail\n", timeout=60)
    assert process.returncode == 1
    assert "ValueError: as asked" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_fork(start: Start, number: signal.Signals) -> None:
    process = start("-m", "program")
    facts_of(process)
    order(process, "wait")
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in err
    else:
        assert process.returncode == -number


def test_the_fork_behind_an_interpreter_is_found(start: Start) -> None:
    process = start("-m", "program")
    pid = facts_of(process)["pid"]
    eventually(lambda: find_fork(process.pid) == pid, "the interpreter knows its fork")
    assert find_fork(pid) == pid, "a process is its own answer"
    order(process, "exit 0")
    process.wait(60)
    assert find_fork(process.pid) == process.pid, "and so is one that has ended"


@pytest.mark.parametrize("victim", ["interpreter", "fork"])
def test_neither_outlives_the_other(start: Start, victim: str) -> None:
    process = start("-m", "program")
    pid = facts_of(process)["pid"]
    order(process, "wait")
    os.kill(process.pid if victim == "interpreter" else pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the fork has ended")


def test_a_fork_may_end_before_its_interpreter_hears_of_it(start: Start) -> None:
    process = start("-m", "program")
    pid = facts_of(process)["pid"]
    process.send_signal(signal.SIGSTOP)  # so that it is slow, wherever it is
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the server knows of the end")
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == -signal.SIGKILL


def test_the_rest_is_the_interpreters(start: Start) -> None:
    out, _ = start("-c", "print(6 * 7)").communicate(timeout=60)
    assert out == "42\n"
    out, err = start("-m", "program", PYTHONPATH="").communicate(timeout=60)
    assert "No module named program" in err, "variables of the interpreter count"


def test_without_a_folder_it_starts_by_itself(interpreter: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {gone}; exec {interpreter} -m program"
    done = subprocess.run(
        ["sh", "-c", command], cwd=gone, capture_output=True, text=True, check=False
    )
    assert "FileNotFoundError" in done.stderr, "the program says it, not the server"
    assert "os.getcwd()" in done.stderr
