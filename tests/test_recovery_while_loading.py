"""Master and supervisor die while all workers still load the model file."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Edl, eventually
from counting import check, event_kinds
from held_loading import HeldLoading

from edl_runtime.json_texts import parse_object
from edl_runtime.local import supervision
from edl_testing.fork_server import find_fork

TOTAL, EPOCHS = 403, 2


def test_a_job_whose_workers_load_comes_back_without_a_client(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    """Workers know no state of the job yet, and are busy with an import. Each new master begins
    anew with workers of its own, and of the former ones none is left."""
    output = tmp_path / "model"
    loading = HeldLoading(edl, tmp_path)
    edl(
        *loading.train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS),
        *("--name", "early", "--detach"),
    )
    job_dir = edl.job_dir("early")

    def master() -> dict[str, Any]:
        return parse_object((job_dir / "master.json").read_bytes())

    def waiting() -> set[int]:
        """Both workers, when they are in their model file."""
        workers = edl.workers("early").values()
        there = {pid for pid in workers if find_fork(pid) in loading.waiting()}
        return there if len(there) == 2 else set()

    first = eventually(waiting, "the workers load")
    before = master()
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: master()["incarnation"] != before["incarnation"], "a new master")
    second = eventually(lambda: (there := waiting()) and not there & first and there, "others load")

    before = master()
    overseer = eventually(lambda: supervision.supervisor_pid(job_dir), "a supervisor")
    starts = supervision.read_report(job_dir)["starts"]
    os.kill(overseer, signal.SIGKILL)
    os.kill(before["pid"], signal.SIGKILL)
    # Only the workers are left to notice.
    eventually(
        lambda: supervision.supervisor_pid(job_dir) not in (None, overseer), "a worker revives it"
    )
    eventually(lambda: master()["incarnation"] != before["incarnation"], "a third master")
    assert supervision.read_report(job_dir)["starts"] > starts
    eventually(lambda: (there := waiting()) and not there & second and there, "others load")
    assert {*edl.processes()} & (first | second) == set()
    assert "WorkerReady" not in event_kinds(edl, "early")

    loading.release()
    edl("wait", "early")
    status = edl.status("early")
    assert status["state"] == "SUCCEEDED"
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    check(output, TOTAL, EPOCHS)
    assert "CheckpointRestored" not in event_kinds(edl, "early")
    assert (status["preemptions"], status["worker_failures"]) == (0, 0)


@pytest.mark.own_start
def test_the_timer_revives_a_job_of_which_no_process_is_left(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    """The job is killed before its workers run, where only the operating system can help."""
    unit = (ROOT / "deploy" / "systemd" / "edl-jobs.service").read_text()
    (command,) = re.findall(r"^ExecStart=/usr/bin/env (edl .*)$", unit, re.M)
    output = tmp_path / "model"
    loading = HeldLoading(edl, tmp_path)
    edl(
        *loading.train(numbered(TOTAL), TOTAL, output, epochs=EPOCHS),
        *("--name", "gone", "--detach"),
    )
    job_dir = edl.job_dir("gone")
    overseer = eventually(lambda: supervision.supervisor_pid(job_dir), "a supervisor")
    os.kill(overseer, signal.SIGKILL)
    while left := edl.processes():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    loading.release()
    assert supervision.supervisor_pid(job_dir) in (None, overseer), "nothing revived it"
    edl.shell(command, tmp_path)
    eventually(lambda: "JobSucceeded" in event_kinds(edl, "gone"), "the job ends without a client")
    check(output, TOTAL, EPOCHS)
