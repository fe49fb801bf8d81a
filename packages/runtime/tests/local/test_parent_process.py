"""A child ends with its parent, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from edl_runtime.local import process_identity

CHILD = """
import sys, time
from edl_runtime.local.parent_process import end_with_parent
end_with_parent()
assert sys.stdin.read() == ""
print("ready", flush=True)
time.sleep(600)
"""
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""


def wait_for_end(pid: int) -> bool:
    deadline = time.monotonic() + 200
    while process_identity.is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("frozen", [False, True])
def test_a_parent_that_is_killed(frozen: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = process_identity.find(int(parent.stdout.readline()))
        assert child is not None
        assert parent.stdout.readline() == b"ready\n"
        if frozen:
            child.send(signal.SIGSTOP)
        parent.kill()
        parent.wait()
        assert wait_for_end(child.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can do that")
def test_a_program_of_others_ends_with_its_parent() -> None:
    script = (
        "import subprocess; from edl_runtime.local.parent_process import ending_with_parent\n"
        'command = ["/bin/sh", "-c", "echo $$; exec sleep 600"]\n'
        "subprocess.Popen(ending_with_parent(command)).wait()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = process_identity.find(int(parent.stdout.readline()))
        assert child is not None
        parent.kill()
        parent.wait()
        assert wait_for_end(child.pid)


def test_a_parent_that_closes_its_end() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.stdin.close()
        assert wait_for_end(child.pid)


def test_the_time_that_a_process_computes() -> None:
    code = (
        "import time; t = time.process_time()\nwhile time.process_time() < t + 0.3: pass\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 200
        # The kernel rounds both parts of the time down to its ticks.
        while process_identity.cpu_seconds(child.pid) < 0.25:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.kill()
    assert process_identity.cpu_seconds(child.pid) == 0.0
