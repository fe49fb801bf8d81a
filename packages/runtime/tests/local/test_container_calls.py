"""Calls through a Unix socket of a job's directory."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edl_runtime.local.container_calls import CallListener, CallRefusedError, call


def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
    match request["call"]:
        case "double":
            return {"number": 2 * request["number"]}
        case "refuse":
            raise CallRefusedError("not this")
        case _:
            raise RuntimeError("broken: secret")


def test_calls_are_answered_refused_or_failed(tmp_path: Path) -> None:
    with CallListener(tmp_path, answer):
        assert call(tmp_path, {"call": "double", "number": 4}, 60) == {"number": 8}
        with pytest.raises(CallRefusedError, match="not this"):
            call(tmp_path, {"call": "refuse"}, 60)
        with pytest.raises(CallRefusedError, match="internal error: RuntimeError") as failed:
            call(tmp_path, {"call": "other"}, 60)
        assert "secret" not in str(failed.value)
    with pytest.raises(ConnectionRefusedError):
        call(tmp_path, {"call": "double", "number": 4}, 60)


def test_a_path_may_be_longer_than_a_socket_s_name(tmp_path: Path) -> None:
    place = tmp_path / ("d" * 120)
    place.mkdir()
    with CallListener(place, answer):
        assert call(place, {"call": "double", "number": 1}, 60) == {"number": 2}
        assert stat.S_IMODE((place / "calls.sock").stat().st_mode) == 0o600


def test_the_socket_of_a_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    CallListener(tmp_path, answer)  # never closed, as its process was killed
    with CallListener(tmp_path, answer):
        assert call(tmp_path, {"call": "double", "number": 1}, 60) == {"number": 2}


@pytest.mark.parametrize(
    "line", [b"\n", b"[]\n", b"null\n", b"{\n", b"\xff\n", b"[" * 100_000 + b"\n", b'{"call": 1}']
)
def test_what_is_no_call_is_refused(tmp_path: Path, line: bytes) -> None:
    with CallListener(tmp_path, answer), socket.socket(socket.AF_UNIX) as connection:
        directory = os.open(tmp_path, os.O_PATH)
        connection.connect(f"/proc/self/fd/{directory}/calls.sock")
        os.close(directory)
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answers:
            assert "refused" in json.loads(answers.readline())


def test_a_call_that_waits_keeps_no_other_from_its_answer(tmp_path: Path) -> None:
    go_on = threading.Event()

    def wait(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["call"] == "wait":
            go_on.wait(300)
        return {"call": request["call"]}

    answers: list[dict[str, Any]] = []
    with CallListener(tmp_path, wait):
        waiting = threading.Thread(
            target=lambda: answers.append(call(tmp_path, {"call": "wait"}, 300))
        )
        waiting.start()
        assert call(tmp_path, {"call": "other"}, 300) == {"call": "other"}
        assert not answers
        go_on.set()
        waiting.join(300)
    assert answers == [{"call": "wait"}]


def test_calls_are_taken_again_when_there_are_threads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = threading.Thread.start, [1]

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "container-call" and left:
            left.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with CallListener(tmp_path, answer):
        with pytest.raises(ConnectionError):
            call(tmp_path, {"call": "double", "number": 1}, 60)
        assert call(tmp_path, {"call": "double", "number": 1}, 60) == {"number": 2}
