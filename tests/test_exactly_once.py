"""Every record trains the model exactly once per epoch, in every mode and whatever dies.

Through the command line each choice is made at least once, undisturbed or under faults; the
master's own tests combine them, in one process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Edl, HeldTraining, eventually
from counting import UPDATES, check, event_kinds, records_trained, train

FLOAT32, FLOAT16, BFLOAT16 = "float32", "float16", "bfloat16"


@pytest.mark.parametrize(
    ("model", "update", "workers", "servers", "precision"),
    [
        ("counting", "sync", 3, 0, BFLOAT16),
        ("counting", "overlap", 2, 2, FLOAT16),
        ("counting", "local", 2, 2, FLOAT32),
        ("counting_rows", "async", 2, 0, FLOAT32),
        ("counting_rows", "bounded", 2, 2, BFLOAT16),
    ],
)
def test_undisturbed(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    model: str,
    update: str,
    workers: int,
    servers: int,
    precision: str,
) -> None:
    total, epochs, output = 997, 2, tmp_path / "model"
    data = numbered(total)
    done = edl(
        *train(data, total, output, *UPDATES[update], epochs=epochs, model=model),
        *("--num-workers", str(workers), "--parameter-servers", str(servers)),
        *("--wire-precision", precision, "--name", "undisturbed"),
        # Evaluations read frozen versions while training goes on.
        *(("--validation-data", str(data)) if servers else ()),
    )
    assert done.json["records_trained"] == epochs * total
    status = edl.status("undisturbed")
    assert len(status["servers"]) == servers
    if model == "counting_rows":
        assert status["embedding_rows"] == {"count": total}
    check(output, total, epochs)


@pytest.mark.parametrize(
    ("model", "update", "sign"),
    [
        pytest.param(*("counting", "overlap", signal.SIGKILL), marks=pytest.mark.smoke),
        ("counting", "local", signal.SIGTERM),
        ("counting_rows", "overlap", signal.SIGKILL),
    ],
)
def test_workers_that_die(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    held: HeldTraining,
    model: str,
    update: str,
    sign: signal.Signals,
) -> None:
    total, epochs, output = 403, 3, tmp_path / "model"
    given = train(numbered(total), total, output, epochs=epochs, model=model, held=held)
    running = edl.start(*given, *UPDATES[update], "--num-workers", "2", "--name", "dying")
    try:
        victims: set[int] = set()
        before = 0
        for _ in range(3):
            eventually(
                lambda before=before: records_trained(edl, "dying") > before, "training goes on"
            )
            before = records_trained(edl, "dying")
            pid = eventually(lambda: set(edl.workers("dying").values()) - victims, "a worker").pop()
            victims.add(pid)
            os.kill(pid, sign)
        held.release()
        out, err = running.communicate(timeout=600)
    finally:
        running.kill()
    assert running.returncode == 0, err
    status = edl.status("dying")
    assert int(status["records_trained"]) == epochs * total, out
    assert status["preemptions"] == 3, edl("events", "dying").out
    check(output, total, epochs)


@pytest.mark.parametrize(("model", "update"), [("counting", "sync"), ("counting_rows", "overlap")])
def test_parameter_servers_that_die(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    held: HeldTraining,
    model: str,
    update: str,
) -> None:
    total, epochs, output = 403, 3, tmp_path / "model"
    running = edl.start(
        *train(numbered(total), total, output, epochs=epochs, model=model, held=held),
        *(*UPDATES[update], "--num-workers", "2", "--parameter-servers", "2", "--name", "dying"),
    )

    def serving(restarts: int, trained: int) -> list[int]:
        """Process ids of the servers, once all serve after so many restarts and records."""
        status = edl.written_status("dying")
        servers = status.get("servers", [])
        if int(status.get("records_trained", 0)) < trained:
            return []
        if any(one["state"] != "serving" or one["restarts"] != restarts for one in servers):
            return []
        return [one["pid"] for one in servers]

    try:
        for kills, victim in ((0, 0), (1, 1)):
            pids = eventually(
                lambda kills=kills: serving(kills, 20 + kills * 40),
                "servers at work",
                every=0.02,
            )
            os.kill(pids[victim], signal.SIGKILL)
        held.release()
        out, err = running.communicate(timeout=600)
    finally:
        running.kill()
    assert running.returncode == 0, err
    status = edl.status("dying")
    assert int(status["records_trained"]) == epochs * total, out
    assert status["servers"][0]["restarts"] == 2
    assert status["master_restarts"] == 0, "a rollback is a restart of servers"
    assert status["worker_failures"] == status["preemptions"] == 0, "workers stay"
    kinds = event_kinds(edl, "dying")
    assert kinds.count("ParameterServerLost") == 2
    assert "JobFailed" not in kinds
    check(output, total, epochs)
