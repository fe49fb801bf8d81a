"""A builder as a process of this machine, for one call."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from edl.plugins.images import BuilderEndpoint, BuildRequest
from edl_images import local_builder
from edl_proto.errors import EdlError, ErrorCode
from edl_testing.waiting import eventually

_QUICK = """
import json, os, sys
print(json.dumps({"address": "127.0.0.1:1", "argv": sys.argv[1:]}), flush=True)
while os.read(0, 1024): pass
"""


def _command(tmp_path: Path, program: str) -> dict[str, str]:
    path = tmp_path / "stand_in_builder.py"
    path.write_text(program)
    return {**os.environ, "EDL_BUILDER_COMMAND": f"{sys.executable} {path}"}


def test_a_builder_runs_for_one_call_and_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    environ = _command(tmp_path, _QUICK)
    request, said = BuildRequest("zoo", "127.0.0.1:5000/x"), []
    second_in = threading.Event()

    def second() -> None:
        with local_builder.running(request, BuilderEndpoint(), said.append, environ):
            second_in.set()

    with local_builder.running(request, BuilderEndpoint(), said.append, environ) as address:
        assert address == "127.0.0.1:1"
        thread = threading.Thread(target=second)
        thread.start()
        eventually(lambda: said, "the second to say that it waits")
        time.sleep(0.2)
        assert not second_in.is_set()
    assert second_in.wait(200)
    thread.join(200)
    assert said == ["waiting for another build on this machine"]


def test_a_long_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(local_builder, "_MAX_LOG_BYTES", 10)
    environ = _command(tmp_path, f"import sys; print('here', file=sys.stderr)\n{_QUICK}")
    request, log = BuildRequest("zoo", "127.0.0.1:5000/x"), tmp_path / "home/builder/builder.log"
    found = []
    for _ in range(5):
        with local_builder.running(request, BuilderEndpoint(), pytest.fail, environ):
            found.append(log.read_text().count("here"))
    assert found == [1, 2, 3, 1, 2]
    assert log.with_name("builder.log.1").read_text().count("here") == 3


def test_a_disk_without_locks_is_no_build_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fcntl, "flock", refuse)
    environ, request = _command(tmp_path, _QUICK), BuildRequest("zoo", "127.0.0.1:5000/x")
    with (
        pytest.raises(EdlError, match="No locks available") as caught,
        local_builder.running(request, BuilderEndpoint(), pytest.fail, environ),
    ):
        pytest.fail("a builder runs")
    assert caught.value.code == ErrorCode.BUILDER_UNAVAILABLE


def test_a_command_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    environ = {**os.environ, "EDL_BUILDER_COMMAND": "python 'x"}
    request = BuildRequest("zoo", "127.0.0.1:5000/x")
    with (
        pytest.raises(EdlError, match="no closing quotation") as caught,
        local_builder.running(request, BuilderEndpoint(), print, environ),
    ):
        pytest.fail("a builder runs")
    assert (caught.value.code, caught.value.where) == (ErrorCode.USAGE, "$EDL_BUILDER_COMMAND")


_LISTENING = """
import json, os, socket, sys
where = sys.argv[sys.argv.index("--listen") + 1]
server = socket.socket(socket.AF_UNIX)
server.bind(where.removeprefix("unix:"))
server.listen()
print(json.dumps({"address": where}), flush=True)
while os.read(0, 1024): pass
"""


@pytest.mark.parametrize("home", ["home", "h" * 120])
def test_no_other_user_can_reach_the_builder_of_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    folder = tmp_path / home / "builder"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    monkeypatch.setenv("EDL_HOME", str(tmp_path / home))
    environ, request = _command(tmp_path, _LISTENING), BuildRequest("zoo", "127.0.0.1:5000/x")
    with local_builder.running(request, BuilderEndpoint(), print, environ) as address:
        path = Path(address.removeprefix("unix:"))
        assert path.is_socket()
        assert path.parent.stat().st_mode & 0o077 == 0
        assert folder.stat().st_mode & 0o077 == 0
        assert len(os.fsencode(path)) <= 107
        if os.geteuid() == 0 and (setpriv := shutil.which("setpriv")):
            program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
            another = [setpriv, "--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c"]
            done = subprocess.run(
                [*another, program], capture_output=True, text=True, check=False, timeout=200
            )
            assert "PermissionError" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_no_place_for_a_builder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "home" / "builder"
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    environ, request = _command(tmp_path, _LISTENING), BuildRequest("zoo", "127.0.0.1:5000/x")
    with (
        pytest.raises(EdlError, match="belongs to another user"),
        local_builder.running(request, BuilderEndpoint(), print, environ),
    ):
        pytest.fail("a builder listens there")


_IN_USE_ONCE = """
import json, os, pathlib, sys
mark = pathlib.Path(__file__).with_suffix(".started")
if not mark.exists():
    mark.touch()
    print(json.dumps({"error": "another builder has it", "is_state_in_use": True}), flush=True)
    sys.exit(2)
print(json.dumps({"address": "127.0.0.1:1"}), flush=True)
while os.read(0, 1024): pass
"""
_REFUSES = """
import json, sys
print("in its log", file=sys.stderr)
print(json.dumps({"error": "there is no engine", "is_state_in_use": False}), flush=True)
sys.exit(1)
"""


def test_a_builder_whose_state_is_in_use_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    environ, request = _command(tmp_path, _IN_USE_ONCE), BuildRequest("zoo", "127.0.0.1:5000/x")
    with local_builder.running(request, BuilderEndpoint(), print, environ) as address:
        assert address == "127.0.0.1:1"


def test_the_error_of_a_builder_that_cannot_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    environ, request = _command(tmp_path, _REFUSES), BuildRequest("zoo", "127.0.0.1:5000/x")
    with (
        pytest.raises(EdlError, match="there is no engine") as caught,
        local_builder.running(request, BuilderEndpoint(), print, environ),
    ):
        pytest.fail("nothing listens")
    assert caught.value.detail == "in its log"
