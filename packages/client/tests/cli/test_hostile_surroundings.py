"""No input and no surroundings of a command are an internal error, a traceback or a hang."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Attempt, Edl, assert_told, eventually
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edl.__main__ import main
from edl.cli.root import COMMANDS
from edl.core.options import BY_NAME
from edl.render.errors import known_error

TOO_LONG = "x" * 5000
NOT_UTF8 = os.fsdecode(b"\xff\xfe")

# What each line of the table makes of a path.
PLACES = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "dangling": lambda path: path.symlink_to(path.parent / "gone"),
    "loop": lambda path: path.symlink_to(path),
    "empty": Path.touch,
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "missing": lambda path: None,
}
NAMES = {"too-long": TOO_LONG, "not-utf-8": NOT_UTF8, "proc": "/proc/none", "dot": "."}

OK, USAGE, DATA, MODEL, EXISTS, GONE, MACHINE = 0, 2, 3, 4, 5, 6, 7

# A job's options travel as UTF-8.
TEXT = {"not-utf-8": USAGE}
FOLDER = {**TEXT, **dict.fromkeys(("folder", "missing", "dot"), OK)}
NEW = {"missing": OK, "too-long": MACHINE, "proc": MACHINE}
# Of each command with a place at PLACE: its exit code, and for which kinds there is another.
# ZOO, DATA and OUT are good places.
TRAIN = "train --dry-run --model-def mine"
COMMANDS_OF_PLACES: list[tuple[str, int, dict[str, int]]] = [
    (f"{TRAIN} --model-zoo ZOO --output OUT --data PLACE", DATA, TEXT),
    (f"{TRAIN} --model-zoo ZOO --output OUT --data DATA --validation-data PLACE", DATA, TEXT),
    (f"{TRAIN} --model-zoo ZOO --data DATA --output PLACE", EXISTS, {**TEXT, **NEW}),
    (f"{TRAIN} --model-zoo ZOO --data DATA --output PLACE/below", MACHINE, FOLDER),
    (f"{TRAIN} --model-zoo ZOO --output OUT --data DATA --init-from PLACE", MODEL, TEXT),
    (f"{TRAIN} --model-zoo ZOO --output OUT --data DATA --checkpoint-dir PLACE", MACHINE, FOLDER),
    (f"{TRAIN} --model-zoo ZOO --output OUT --data DATA --tensorboard-dir PLACE", MACHINE, FOLDER),
    (f"{TRAIN} --output OUT --data DATA --model-zoo PLACE", MODEL, {**TEXT, "too-long": MACHINE}),
    ("evaluate --dry-run --data DATA --trained-model PLACE", MODEL, TEXT),
    ("predict --dry-run --data PLACE --trained-model PLACE --output PLACE", MODEL, TEXT),
    ("data inspect PLACE", DATA, {"empty": OK}),
    # Any lines are CSV.
    (
        "data inspect PLACE --check --format csv",
        DATA,
        dict.fromkeys(("empty", "dot"), OK),
    ),
    ("data convert PLACE --to OUT", DATA, {"too-long": MACHINE}),
    ("data convert PLACE --to OUT --format idx", DATA, {"too-long": MACHINE}),
    ("data convert DATA --to PLACE", EXISTS, {**NEW, "not-utf-8": OK}),
    (
        "zoo init PLACE",
        EXISTS,
        {**NEW, "folder": OK, "dangling": MACHINE, "loop": MACHINE, "not-utf-8": OK},
    ),
    ("status PLACE", GONE, {}),
]


def refused_or_done(code: int, err: str, what: object) -> None:
    assert code != 70, f"{what}\n{err}"
    assert "Traceback" not in err, f"{what}\n{err}"
    assert "internal error" not in err, f"{what}\n{err}"
    if code and code != 130:
        assert "error: " in err, f"{what} ends with {code} and no error"


@pytest.mark.parametrize("kind", [*PLACES, *NAMES])
def test_a_place_of_any_kind(attempt: Attempt, tmp_path: Path, kind: str) -> None:
    for number, (command, usual, others) in enumerate(COMMANDS_OF_PLACES):
        place = tmp_path / f"{kind}-{number}"
        if kind in PLACES:
            PLACES[kind](place)
        named = NAMES.get(kind, str(place))
        good = {"ZOO": "zoo", "DATA": "data/a.recordio", "OUT": f"out-{kind}-{number}"}
        words = [good.get(part, part).replace("PLACE", named) for part in command.split()]
        done = attempt(*words)
        refused_or_done(done.code, done.err, done.args)
        assert done.code == others.get(kind, usual), str(done)
        if kind == "not-utf-8" and done.code == OK:
            shutil.rmtree(named)  # the next command gets this name, too


@pytest.mark.parametrize("kind", [*PLACES, *NAMES])
def test_a_home_of_any_kind(
    attempt: Attempt, edl: Edl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind in PLACES:
        PLACES[kind](tmp_path / "home")
    if kind == "dot":
        return  # would be written to
    monkeypatch.setenv("EDL_HOME", NAMES.get(kind, str(tmp_path / "home")))
    for command in (["list"], ["status", "x"], ["delete", "x", "--yes"], ["logs", "x"]):
        done = attempt(*command)
        refused_or_done(done.code, done.err, command)
    done = attempt(*edl.job("--dry-run"))
    refused_or_done(done.code, done.err, kind)
    assert kind in ("folder", "missing") or done.code in (2, 7), done


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((option.variable, "\t??") for option in BY_NAME.values()),
        ("EDL_MASTER_COMMAND", "'"), ("EDL_PYTHON", "/none"), ("COLUMNS", "x"), ("HOME", ""),
        ("XDG_CONFIG_HOME", "/dev/zero"), ("TERM", "\x01"),
    ],
)  # fmt: skip
def test_a_variable_without_sense(
    attempt: Attempt, edl: Edl, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    for command in (edl.job("--dry-run"), ["list"]):
        done = attempt(*command)
        refused_or_done(done.code, done.err, (name, command))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff", b"num-workers = ", b"num-workers = {}", b"num-workers = [1]", b"[train]\nx = 1",
        b"train = 3", b"data = 1", b"data = [[1]]", b"num-workers = 1979-05-27", b"name = '\\\\'",
        b'model-def = "\\u0000"', b"detach = true", b"num_workers = 1e400", b"[[train]]\n",
        b"minibatch-size = 99999999999999999999999", b"[train.train]\n", b"timeout = inf",
    ],
)  # fmt: skip
def test_a_project_file_without_sense(
    attempt: Attempt, edl: Edl, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "edl.toml").write_bytes(content)
    done = attempt(*edl.job("--dry-run"))
    refused_or_done(done.code, done.err, content)


@pytest.mark.parametrize(
    "command",
    [
        "zoo init PLACE", "data convert PLACE --to out",
        "data convert --from sqlite:///PLACE --query SELECT --to out",
        "data convert --from duckdb:///PLACE --query SELECT --to out",
        "sql --db postgresql://me@127.0.0.1:1/d --password-file PLACE -e SELECT",
    ],
)  # fmt: skip
def test_a_home_folder_that_does_not_exist(attempt: Attempt, tmp_path: Path, command: str) -> None:
    done = attempt(*command.replace("PLACE", "~no-such-user/x").split())
    assert_told(
        done, USAGE, "no home folder ~no-such-user", "where: ~no-such-user/x", "./~no-such-user/x"
    )
    assert not (tmp_path / "~no-such-user").exists()


def test_a_user_without_a_known_home_folder(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is a container whose user has a number and no name."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "~" / ".config" / "edl").mkdir(parents=True)
    (tmp_path / "~" / ".config" / "edl" / "config.toml").write_text("of another = user")
    assert attempt("list").code == OK
    monkeypatch.delenv("EDL_HOME")
    done = attempt("list")
    refused_or_done(done.code, done.err, "list")
    assert done.code == USAGE, str(done)
    assert "no home folder of this user" in done.err
    assert "what to do: Set EDL_HOME" in done.err


def test_a_working_directory_that_is_gone(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "removed"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    train = ("train", "--model-zoo", "zoo", "--model-def", "m", "--data", "d", "--output", "o")
    for command in (train, ["zoo", "init", "x"], ["list"], ["delete", "x"]):
        assert_told(
            attempt(*command),
            MACHINE,
            "the working directory does not exist any more",
            "what to do: Change to a folder that exists.",
        )


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    command=st.sampled_from([*COMMANDS, "zoo", "data", ""]),
    words=st.lists(
        st.one_of(
            st.sampled_from(["init", "check", "convert", "inspect", "--", "-o", "json", "-q", "x"]),
            st.sampled_from([option.flag for option in BY_NAME.values()]),
            st.text(max_size=8).filter(lambda text: "\0" not in text),
            st.sampled_from(["--data=", "--to", "-5", "nan", "inf", "1e999", "\x1b[2J", NOT_UTF8]),
            st.integers().map(str),
        ),
        max_size=7,
    ),
)
def test_a_command_line_of_any_words(attempt: Attempt, command: str, words: list[str]) -> None:
    if command in ("doctor", "builder"):
        return  # takes seconds
    where = Path.cwd()
    before = set(where.iterdir())
    done = attempt(command, *words, "--no-such-option" if command == "" else "--")
    refused_or_done(done.code, done.err, (command, words))
    assert set(where.iterdir()) - before <= {where / "edl-home"} or command in ("zoo", "data")


def test_ctrl_c_before_the_command_begins(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edl.cli.root.root.main", interrupt)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert not capsys.readouterr().err


# --- the job's directory ------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_a_pipe_in_the_place_of_any_file_of_a_job(tidy: Edl, attempt: Attempt) -> None:
    tidy(*tidy.job("--name", "odd"))
    folder = tidy.job_dir("odd")
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert folder / "spec.json" in files
    for file in files:
        kept = file.rename(tidy.place / "kept")
        os.mkfifo(file)
        for command in ("list", "status", "events", "logs", "trace"):
            done = attempt(command, *(["odd"] if command != "list" else []))
            refused_or_done(done.code, done.err, (command, file))
            if file.name == "spec.json" and command in ("list", "status"):
                assert "the path is not a regular file" in done.err
        kept.replace(file)
    # A command may have started the job again, because it could not read that the job has ended.
    eventually(lambda: "succeeded" in attempt("status", "odd").out, "the job has succeeded")


def test_a_library_that_does_not_fit_into_memory_is_no_defect() -> None:
    error = known_error(ImportError("libscipy.so: failed to map segment from shared object"))
    assert error is not None
    assert error.what == "there is not enough memory"
    other = known_error(ImportError("no module named x"))
    assert other is not None
    assert other.code_name == "INTERNAL"


# --- processes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 7), ("2>/dev/full", 0)],
)
def test_streams_that_are_closed_or_full(edl: Edl, redirection: str, code: int) -> None:
    lines = edl.job_dir("listed")
    lines.mkdir(parents=True)  # of a job that is shown as unreadable
    for words in ("version", "--help", "list"):
        command = f'exec "$0" -m edl {words} {redirection}'
        done = subprocess.run(
            ["sh", "-c", command, sys.executable],
            # Python keeps what it could not write, and tries again at its end, if it buffers.
            env={**edl.env, "PYTHONUNBUFFERED": ""}, cwd=edl.place,
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        refused_or_done(code, done.stderr, redirection)
        assert not code or "where: standard output" in done.stderr


@pytest.mark.parametrize(
    "words", ["list -o json", "status gone -o json", "version", "--help", "train --help"]
)
def test_a_command_whose_reader_has_gone_ends_in_silence(edl: Edl, words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = edl.run(*words.split(), stdout=writer)
    os.close(writer)
    assert done.code == 141
    assert done.err == "" or words.startswith("status"), done.err
    refused_or_done(0, done.err, words)


def test_the_page_of_a_finished_job_ends_with_its_command(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "page"))
    child = tidy.start("dashboard", "page")
    assert child.stdout is not None
    assert child.stdout.readline().startswith("http://")
    child.send_signal(signal.SIGKILL)
    child.wait()
    eventually(lambda: not tidy.processes(), "the server of the page has ended")
