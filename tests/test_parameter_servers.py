"""Several parameter servers: their connections, their restarts, and checkpoints of any number."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Edl, HeldTraining, eventually
from counting import check, event_kinds, records_trained, train
from held_loading import HeldLoading

from edl_testing.fork_server import find_fork


def serving(edl: Edl, restarts: int) -> list[int]:
    """Process numbers of the servers after so many restarts, when all of them serve."""
    servers = edl.written_status("sharded").get("servers", [])
    if any(one["state"] != "serving" or one["restarts"] != restarts for one in servers):
        return []
    return [one["pid"] for one in servers]


def directly_connected(pid: int) -> int:
    """Connections that workers have to the Unix socket of a server.

    From what Linux says of the process: its sockets by inode, and what each is.
    """
    sockets, pid = set(), find_fork(pid)
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.add(str(one.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = 0
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        *_, state, inode, path = (*line.split(), "")[:8]
        found += inode in sockets and path.endswith("/direct.sock") and state == "03"
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_workers_reach_servers_directly_and_their_successors_too(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    total, epochs, output = 403, 2, tmp_path / "model"
    edl(
        *train(numbered(total), total, output, "--num-workers", "2", epochs=epochs, held=held),
        *("--parameter-servers", "2", "--name", "sharded", "--detach"),
    )

    def find_connected(restarts: int) -> list[int]:
        """Return the servers' process numbers when both workers have reached both directly."""
        servers = edl.written_status("sharded").get("servers", [])
        if any(one["state"] != "serving" or one["restarts"] != restarts for one in servers):
            return []
        with contextlib.suppress(FileNotFoundError):  # it is gone, or going
            if all(directly_connected(one["pid"]) >= 2 for one in servers):
                return [one["pid"] for one in servers]
        return []

    pids = eventually(lambda: find_connected(0), "direct connections", every=0.02)
    os.kill(pids[0], signal.SIGKILL)
    successors = eventually(lambda: find_connected(1), "direct connections to others", every=0.02)
    assert not set(pids) & set(successors)
    held.release()
    edl("wait", "sharded")
    assert int(edl.status("sharded")["records_trained"]) == epochs * total
    check(output, total, epochs)


def test_servers_that_are_killed_before_there_is_a_snapshot_begin_anew(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    """Once before any worker has described the model, and once after that.

    A frozen server writes no part of a snapshot, so that there is none until it is killed.
    """
    total, epochs, output = 997, 3, tmp_path / "model"
    loading = HeldLoading(edl, tmp_path)
    edl(
        *loading.train(numbered(total), total, output, "--num-workers", "2", epochs=epochs),
        *("--parameter-servers", "2", "--name", "sharded", "--detach"),
    )
    pids = eventually(lambda: serving(edl, 0), "servers", every=0.02)
    os.kill(pids[1], signal.SIGKILL)
    pids = eventually(lambda: serving(edl, 1), "others", every=0.02)
    eventually(
        lambda: len({*map(find_fork, edl.workers("sharded").values())} & loading.waiting()) == 2,
        "others",
    )
    assert "WorkerReady" not in event_kinds(edl, "sharded")
    os.kill(find_fork(pids[0]), signal.SIGSTOP)
    loading.release()
    # On a slow machine the master gives the frozen server up before that, which is a loss as well.
    eventually(lambda: "WorkerReady" in event_kinds(edl, "sharded") or serving(edl, 2), "a model")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[0], signal.SIGKILL)
    edl("wait", "sharded")
    assert event_kinds(edl, "sharded").count("ParameterServerLost") == 2
    assert "CheckpointRestored" not in event_kinds(edl, "sharded"), (
        "there was nothing to go on from"
    )
    assert int(edl.status("sharded")["records_trained"]) == epochs * total
    check(output, total, epochs)


def test_a_job_whose_servers_never_last_says_so_and_ends(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    """Five times from one and the same beginning; the sixth time it is no accident any more."""
    total = 997
    loading = HeldLoading(edl, tmp_path)
    edl(
        *loading.train(numbered(total), total, tmp_path / "model", epochs=3),
        *("--num-workers", "2", "--parameter-servers", "2", "--name", "sharded", "--detach"),
    )
    for restarts in range(6):
        pids = eventually(lambda n=restarts: serving(edl, n), f"servers {restarts}", every=0.02)
        os.kill(pids[restarts % 2], signal.SIGKILL)
    eventually(lambda: edl.written_status("sharded").get("state") == "FAILED", "the job gives up")
    error = edl.status("sharded")["error"]
    assert error["code"] == "WORKER_CRASH_LOOP"
    assert "5 times before" in error["what"]
    assert "server-N.log" in error["remedy"]
    assert event_kinds(edl, "sharded").count("ParameterServerLost") == 5
    assert "WorkerReady" not in event_kinds(edl, "sharded")
    eventually(lambda: not edl.processes(), "no process is left")


@pytest.mark.parametrize("model", ["counting", "counting_rows"])
def test_a_checkpoint_of_some_servers_is_taken_up_by_any_number(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining, model: str
) -> None:
    total, epochs, output = 61, 24, tmp_path / "model"
    given = [
        *train(numbered(total), total, output, epochs=epochs, model=model, held=held),
        *("--num-workers", "2", "--checkpoint-dir", str(tmp_path / "checkpoints")),
        *("--name", "again"),
    ]
    before = 0
    for servers in (2, 3):
        edl(*given, "--parameter-servers", str(servers), "--detach")
        eventually(
            lambda before=before: records_trained(edl, "again") > before + total,
            "an epoch has passed",
            every=0.02,
        )
        edl("stop", "again")
        status = edl.status("again")
        before = int(status["records_trained"])
        assert total < before < epochs * total
        assert status["state"] == "CANCELLED"
        edl("delete", "again", "--yes")
    held.release()
    assert edl(*given).json["records_trained"] == epochs * total
    assert "Continues from checkpoint" in edl("events", "again").out
    check(output, total, epochs)
