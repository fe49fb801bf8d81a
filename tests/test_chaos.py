"""A short spell of what ``./dev chaos`` does for long."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from chaos.__main__ import EndingRequest, audit, left_behind
from chaos.audits import AuditedJob
from chaos.faults import FAULTS, STORM_S, schedule
from chaos.job import Job

SEED, MINUTES = 317, 0.3
"""A supervisor, a server, a worker and a master are killed, and the last two frozen, too."""
QUICK = [kind.name for kind in FAULTS if max(kind.durations_s) < 30 and not kind.role.leaves_none]
"""Faults after which a job soon trains on."""


@pytest.mark.product
def test_a_short_storm_over_every_role_loses_and_repeats_nothing() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "chaos", "--minutes", str(MINUTES)),
            *("--seed", str(SEED), "--every", "2", "--model", "counting", "--records", "12007"),
            *("--servers", "2", "--update", "sync", "--faults", *QUICK),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tools"},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 repeated" in done.stdout
    assert "(pid " in done.stdout, "no process was hit"


def test_a_seed_is_always_the_same_schedule() -> None:
    first = list(itertools.islice(schedule(5, 2.0), 400))
    assert first == list(itertools.islice(schedule(5, 2.0), 400))
    assert first != list(itertools.islice(schedule(6, 2.0), 400))
    assert {fault.kind for fault in first} == set(FAULTS)
    assert 1.5 < sum(fault.after_s for fault in first) / 400 < 2.5
    stormy = list(itertools.islice(schedule(5, 2.0, storm=8), 400))
    assert sum(fault.after_s == STORM_S for fault in stormy) == 350
    assert 1.5 < sum(fault.after_s for fault in stormy) / 400 < 2.5


class OverJob(Job):
    """A job that is over, as its files say."""

    def __init__(self, directory: Path, state: str, **status: Any) -> None:
        self.name = directory.name
        self.directory = directory
        self.disk = directory / "disk"
        self.damaged = set()
        self.scaled = [2]
        self._scaling = threading.Lock()
        directory.mkdir()
        written = {"state": state, "workers_wanted": {"max": 2}, **status}
        (directory / "status.json").write_text(json.dumps(written))


NOTHING = AuditedJob("counting", Path(), [], 0, lambda output, status: [])


def audit_end(job: Job, done: dict[str, int], request: str = "") -> list[str]:
    output = job.directory.parent / "model"
    for name in ("parameters.safetensors", "model.keras", "saved_model", "trained_model.pb"):
        (output / name).mkdir(parents=True, exist_ok=True)
    ending = EndingRequest(job, "")
    ending.what = request
    return audit(NOTHING, job, output, job.status(), Counter(done), ending)


def test_an_end_is_right_only_for_a_reason_that_was_given(tmp_path: Path) -> None:
    assert audit_end(OverJob(tmp_path / "well", "SUCCEEDED"), {"master kill": 3}) == []
    full = OverJob(tmp_path / "full", "FAILED", error={"code": "DISK_FULL"})
    assert audit_end(full, {"job fill disk of": 1}) == []
    assert "DISK_FULL" in audit_end(full, {"master kill": 3})[0]
    stopped = OverJob(tmp_path / "stopped", "CANCELLED")
    assert audit_end(stopped, {}, "stop") == []
    assert "CANCELLED" in audit_end(stopped, {})[0]


def test_an_acknowledged_request_counts(tmp_path: Path) -> None:
    scaled = OverJob(tmp_path / "scaled", "SUCCEEDED")
    scaled.scaled = [3]
    assert audit_end(scaled, {}) == ["2 workers are wanted, and [3] were acknowledged"]
    trained_on = OverJob(tmp_path / "trained-on", "SUCCEEDED")
    (trained_on.directory / "requests.json").write_text('{"stop": {"reason": ""}}')
    assert "SUCCEEDED" in audit_end(trained_on, {}, "stop")[0]


def test_what_is_left_behind_is_found(tmp_path: Path) -> None:
    job, output = OverJob(tmp_path / "job", "SUCCEEDED"), tmp_path / "model"
    assert left_behind(job, output) == []
    (tmp_path / ".model.edl-job.0123abcd-7.tmp").mkdir()
    assert "0123abcd" in left_behind(job, output)[0]
