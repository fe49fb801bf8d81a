"""Several parameter servers: the same model, exactly once, whichever server is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Edl, eventually
from test_embeddings import check_counts
from test_exactly_once import counts
from test_recovery import kinds, trained, written

MODES = {
    "async": ("--update", "async"),
    "sync": ("--update", "sync", "--gradient-reduction", "sum"),
    "bounded": ("--update", "bounded", "--max-staleness", "1"),
    "local": ("--local-steps", "3"),
}

ROWS_LOCAL = "counting_rows", "local"
"""Refused: rows are not updated in workers."""


def arguments(model: str, data: Path, output: Path, epochs: int, *more: str) -> list[str]:
    return [
        *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", model),
        *("--data", str(data), "--num-epochs", str(epochs), "--num-workers", "2"),
        *("--minibatch-size", "16", "--records-per-task", "100"),
        *("--output", str(output), "-o", "json", *more),
    ]


@pytest.mark.parametrize(
    ("model", "mode"),
    [(m, mode) for m in ("counting", "counting_rows") for mode in MODES if (m, mode) != ROWS_LOCAL],
)
def test_every_record_trains_exactly_once_per_epoch(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], model: str, mode: str
) -> None:
    total, output = 997, tmp_path / "model"
    params = ("--params", f"size={total}") if model == "counting" else ()
    done = edl(
        *arguments(model, numbered(total), output, 2, *params, *MODES[mode]),
        *("--parameter-servers", "2", "--validation-data", str(tmp_path / "numbered")),
        *("--name", "crew"),
    )
    assert done.json["records_trained"] == 2 * total
    assert len(edl.status("crew")["servers"]) == 2
    if model == "counting":
        np.testing.assert_array_equal(counts(output), 2)
    else:
        check_counts(output, total, 2)
        assert edl.status("crew")["embedding_rows"] == {"count": total}


@pytest.mark.parametrize(
    ("model", "mode"), [("counting", "sync"), ("counting", "async"), ("counting_rows", "async")]
)
def test_servers_that_are_killed_lose_and_repeat_nothing(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], model: str, mode: str
) -> None:
    total, epochs, output = 6_007, 4, tmp_path / "model"
    params = ("--params", f"size={total}") if model == "counting" else ()
    running = edl.start(
        *arguments(model, numbered(total), output, epochs, *params, *MODES[mode]),
        *("--parameter-servers", "2", "--name", "crew"),
    )

    def there(restarts: int, trained: int) -> list[int]:
        """Process numbers of servers that serve, after so many restarts and records."""
        try:
            status = json.loads((edl.job_dir("crew") / "status.json").read_text())
        except FileNotFoundError:
            return []
        servers = status["servers"]
        if int(status["records_trained"]) < trained:
            return []
        if any(s["state"] != "serving" or s["restarts"] != restarts for s in servers):
            return []
        return [s["pid"] for s in servers]

    try:
        for kills, victim in ((0, 0), (1, 1)):
            pids = eventually(
                lambda kills=kills: there(kills, 1_000 + kills * 4_000),
                "servers at work",
                every=0.02,
            )
            os.kill(pids[victim], signal.SIGKILL)
        out, err = running.communicate(timeout=240)
    finally:
        running.kill()
    assert running.returncode == 0, err
    status = edl.status("crew")
    assert int(status["records_trained"]) == epochs * total, out
    assert status["servers"][0]["restarts"] == 2
    assert status["worker_failures"] == status["preemptions"] == 0, "workers stay"
    kinds = [
        json.loads(line)["kind"] for line in edl("events", "crew", "-o", "json").out.splitlines()
    ]
    assert kinds.count("ParameterServerLost") == 2
    assert "JobFailed" not in kinds
    if model == "counting":
        np.testing.assert_array_equal(counts(output), epochs)
    else:
        check_counts(output, total, epochs)


def serving(edl: Edl, restarts: int) -> list[int]:
    """Process numbers of the servers after so many restarts, when all of them serve."""
    servers = written(edl, "crew").get("servers", [])
    if any(one["state"] != "serving" or one["restarts"] != restarts for one in servers):
        return []
    return [one["pid"] for one in servers]


def directly_connected(pid: int, address: str) -> int:
    """Connections that workers have to the port of a server that is not its gRPC port.

    From what Linux says of the process: its sockets by inode, and of these where they listen and
    which are established.
    """
    sockets = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.add(str(one.readlink()).removeprefix("socket:[").removesuffix("]"))
    listening, established = set(), []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] not in sockets:
            continue
        port = int(fields[1].rpartition(":")[2], 16)
        if fields[3] == "0A":
            listening.add(port)
        elif fields[3] == "01":
            established.append(port)
    direct = listening - {int(address.rpartition(":")[2])}
    return sum(port in direct for port in established)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_workers_reach_servers_directly_and_their_successors_too(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    total, epochs, output = 6_007, 8, tmp_path / "model"
    edl(
        *arguments("counting", numbered(total), output, epochs, "--params", f"size={total}"),
        *("--parameter-servers", "2", "--name", "crew", "--detach"),
    )

    def connected(restarts: int) -> list[int]:
        """Process numbers of the servers, when both workers have reached both directly."""
        servers = written(edl, "crew").get("servers", [])
        if any(one["state"] != "serving" or one["restarts"] != restarts for one in servers):
            return []
        with contextlib.suppress(FileNotFoundError):  # it is gone, or going
            if all(directly_connected(one["pid"], one["address"]) >= 2 for one in servers):
                return [one["pid"] for one in servers]
        return []

    pids = eventually(lambda: connected(0), "direct connections", every=0.02)
    os.kill(pids[0], signal.SIGKILL)
    successors = eventually(lambda: connected(1), "direct connections to others", every=0.02)
    assert not set(pids) & set(successors)
    edl("wait", "crew", timeout=240)
    assert int(edl.status("crew")["records_trained"]) == epochs * total
    np.testing.assert_array_equal(counts(output), epochs)


def test_servers_that_are_killed_before_there_is_a_snapshot_begin_anew(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    """Once before any worker has said what is to be trained, and once more after that."""
    total, epochs, output = 997, 3, tmp_path / "model"
    edl(
        *arguments("counting", numbered(total), output, epochs, "--params", f"size={total}"),
        *("--parameter-servers", "2", "--name", "crew", "--detach"),
    )
    pids = eventually(lambda: serving(edl, 0), "servers", every=0.02)
    assert not list((edl.job_dir("crew") / "snapshots").glob("crew-*"))
    os.kill(pids[1], signal.SIGKILL)
    pids = eventually(lambda: serving(edl, 1), "others", every=0.02)
    assert not list((edl.job_dir("crew") / "snapshots").glob("crew-*"))
    os.kill(pids[0], signal.SIGKILL)
    edl("wait", "crew", timeout=240)
    assert kinds(edl, "crew").count("ParameterServerLost") == 2
    assert "CheckpointRestored" not in kinds(edl, "crew"), "there was nothing to go on from"
    assert int(edl.status("crew")["records_trained"]) == epochs * total
    np.testing.assert_array_equal(counts(output), epochs)


def test_a_job_whose_servers_never_last_says_so_and_ends(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    """Five times from one and the same beginning; the sixth time it is no accident any more."""
    total = 997
    edl(
        *arguments("counting", numbered(total), tmp_path / "model", 3, "--params", f"size={total}"),
        *("--parameter-servers", "2", "--name", "crew", "--detach"),
    )
    for restarts in range(6):
        pids = eventually(lambda n=restarts: serving(edl, n), f"servers {restarts}", every=0.02)
        os.kill(pids[restarts % 2], signal.SIGKILL)
    eventually(lambda: written(edl, "crew").get("state") == "FAILED", "the job gives up")
    error = edl.status("crew")["error"]
    assert error["code"] == "WORKER_CRASH_LOOP"
    assert "5 times before" in error["what"]
    assert "server-N.log" in error["remedy"]
    assert kinds(edl, "crew").count("ParameterServerLost") == 5
    eventually(lambda: not edl.processes(), "nobody is left")


@pytest.mark.parametrize("model", ["counting", "counting_rows"])
def test_a_checkpoint_of_some_servers_is_taken_up_by_any_number(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], model: str
) -> None:
    total, epochs, output = 1_501, 24, tmp_path / "model"
    params = ("--params", f"size={total}") if model == "counting" else ()
    given = [
        *arguments(model, numbered(total), output, epochs, *params, "--name", "again"),
        *("--checkpoint-dir", str(tmp_path / "checkpoints")),
    ]
    before = 0
    for servers in (2, 3):
        edl(*given, "--parameter-servers", str(servers), "--detach")
        eventually(
            lambda before=before: trained(edl, "again") > before + total,
            "an epoch has passed",
            every=0.02,
        )
        edl("stop", "again")
        status = edl.status("again")
        before = int(status["records_trained"])
        assert total < before < epochs * total
        assert status["state"] == "CANCELLED"
        edl("delete", "again", "--yes")
    assert edl(*given).json["records_trained"] == epochs * total
    assert "Goes on from checkpoint" in edl("events", "again").out
    if model == "counting":
        np.testing.assert_array_equal(counts(output), epochs)
    else:
        check_counts(output, total, epochs)
