"""Connections to a pod: one that cannot be made does not end those that come later."""

from __future__ import annotations

import errno
import os
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from edl_kubernetes.port_forward import PortForward


def test_a_forward_outlives_a_moment_of_too_many_open_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = socket.create_server(("127.0.0.1", 0))
    failed, asked = threading.Event(), threading.Event()

    def accept() -> Any:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return made.accept()

    listener = SimpleNamespace(
        accept=accept, getsockname=made.getsockname, shutdown=made.shutdown, close=made.close
    )
    monkeypatch.setattr("socket.create_server", lambda address: listener)

    def web_socket(*_: object) -> None:
        asked.set()
        raise OSError("the pod is gone")

    api: Any = SimpleNamespace(web_socket=web_socket)
    forward = PortForward(api, "pods/master", 1)
    assert failed.wait(60)
    with socket.create_connection(made.getsockname()):
        assert asked.wait(60)
    forward.close()
    accepting = [each for each in threading.enumerate() if each.name == "port-forward"]
    for thread in accepting:
        thread.join(60)
    assert not any(thread.is_alive() for thread in accepting)
