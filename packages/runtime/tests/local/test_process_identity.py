"""Processes are identified by number and start time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from edl_runtime.local import process_identity
from edl_runtime.local.process_identity import Process

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(SLEEP, start_new_session=True)
    yield child
    child.kill()
    child.wait()


def test_a_running_process_is_found_with_its_start_time(child: subprocess.Popen[bytes]) -> None:
    found = process_identity.find(child.pid)
    assert found == Process(child.pid, process_identity.start_time(child.pid) or 0)
    assert found.is_alive
    assert found in process_identity.children(os.getpid())


def test_a_process_of_another_start_time_is_another_process(
    child: subprocess.Popen[bytes],
) -> None:
    other = Process(child.pid, 1)
    assert not other.is_alive
    assert other.open() is None
    other.send(signal.SIGKILL)
    assert child.poll() is None


def test_a_zombie_is_known_but_not_alive(child: subprocess.Popen[bytes]) -> None:
    found = process_identity.find(child.pid)
    assert found is not None
    found.send(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not found.is_alive
    assert not process_identity.is_running(child.pid)
    assert process_identity.find(child.pid) == found
    child.wait()
    assert process_identity.find(child.pid) is None


def test_the_name_of_an_instance_has_host_number_and_start_time() -> None:
    assert process_identity.instance_name(7, 42) == f"{os.uname().nodename}:7:42"
