"""Each fault of ``./dev chaos``: what it does, and that a schedule draws it."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from conftest import ROOT, eventually

sys.path.insert(0, str(ROOT / "tools"))

import recordio
from chaos import __main__ as program
from chaos import actions, audits
from chaos.clock import Clock
from chaos.faults import EVERYTHING, FAULTS, schedule
from chaos.inputs import Inputs
from chaos.job import Job
from edl_runtime.local import supervision
from edl_testing.requirements import require_program

BY_NAME = {kind.name: kind for kind in FAULTS}
ROWS = re.findall(
    r"^\| `(-[^`]*)` \| (.*) \|$", (ROOT / "docs" / "recovery.md").read_text(), re.MULTILINE
)
"""Options of ``./dev chaos`` and what they cause, as the document says."""


def options(row: tuple[str, str]) -> Any:
    """The options of a row as the program takes them; it refuses kinds that it does not have."""
    return program._parser().parse_args(shlex.split(row[0]))


def row(words: str) -> Any:
    """The options of the row that says these words of what it causes."""
    (found,) = [options(each) for each in ROWS if words in each[1]]
    return found


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ("SIGTERM to all processes", {"everything term"}),
        ("32 s", {f"{who} freeze long" for who in ("worker", "master", "supervisor")}),
        ("damaged", {"master damage snapshot and kill", "everything damage files and kill"}),
        ("read-only", {"job fill disk of", "job forbid writing to"}),
        ("clock", {"job set clock of"}),
        ("changed", {"job edit code of", "job touch data of", "job rewrite data of"}),
        ("reset", {"master abort connections of", "server abort connections of"}),
        ("scaled", {"job scale", "worker kill", "master kill"}),
    ],
)
def test_the_document_says_how_to_cause_each_danger(words: str, kinds: set[str]) -> None:
    assert kinds <= set(row(words).faults)


def test_the_document_says_how_to_cause_storms_and_early_ends() -> None:
    assert row("storms").storm > 1
    ended = row("stopped and deleted")
    assert set(ended.endings) == {"stop", "delete"}
    assert {"worker kill", "master kill"} <= set(ended.faults)
    assert row("read-only").disks


@pytest.mark.parametrize("seed", range(1, 11))
def test_an_hour_of_a_seed_has_every_kind(seed: int) -> None:
    drawn = list(itertools.islice(schedule(seed, 5.0), 720))
    assert {fault.kind for fault in drawn} == set(FAULTS)
    assert all(fault.for_s in fault.kind.durations_s for fault in drawn)


def test_a_long_freeze_is_longer_than_a_supervisor_waits() -> None:
    frozen = [kind for kind in FAULTS if kind.action is actions.LONG_FREEZE]
    assert {kind.role.name for kind in frozen} >= {"worker", "master", "supervisor"}
    assert min(min(kind.durations_s) for kind in frozen) > supervision.FROZEN_S


class Idle(Job):
    """A job whose processes are numbers, and whose commands do nothing but count."""

    def __init__(self, directory: Path) -> None:
        self.name, self.directory, self.disk = "idle", directory, directory.parent / "disk"
        self.servers, self.damaged, self.clock = 2, set(), Clock(directory.parent)
        self.commands: list[tuple[str, ...]] = []
        self.answers = itertools.repeat(0)
        directory.mkdir()

    def master_pids(self) -> list[int]:
        return [1001]

    def supervisor_pids(self) -> list[int]:
        return [1002]

    def worker_pids(self, worker: int | None = None) -> list[int]:
        return [1010, 1011]

    def server_pids(self, server: int) -> list[int]:
        return [1020 + server]

    def client_pids(self) -> list[int]:
        return [1003]

    has_begun, is_over = True, False

    def try_edl(self, *arguments: str) -> CompletedProcess[str]:
        self.commands.append(arguments)
        return CompletedProcess(arguments, next(self.answers))


@pytest.fixture
def job(tmp_path: Path) -> Idle:
    require_program("cc", "gcc")
    return Idle(tmp_path / "job")


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Signals that were sent; none reaches a process."""
    sent: list[tuple[int, str]] = []
    monkeypatch.setattr(
        actions, "_signal", lambda pids, what: sent.extend((pid, what.name) for pid in pids)
    )
    return sent


def test_everything_is_every_process_but_the_client(job: Idle) -> None:
    assert sorted(EVERYTHING.pids(job, 0)) == [1001, 1002, 1010, 1011, 1020, 1021]


def test_every_fault_concerns_a_job_with_servers_and_a_disk_on_a_machine_for_root(
    job: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {kind.name for kind in FAULTS}
    drawn = list(itertools.islice(schedule(1, 5.0), 360))

    def find_concerned() -> set[str]:
        return {fault.kind.name for fault in drawn if fault.concerns(job)}

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    disk = {kind.name for kind in FAULTS if kind.role.name == "job" and kind.action.ends_with}
    assert len(disk) == 2
    assert find_concerned() == kinds - disk, "the disk is none of its own"
    monkeypatch.setattr(Path, "is_mount", lambda path: path == job.disk)
    assert find_concerned() == kinds
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert kinds - find_concerned() == {name for name in kinds if "abort connections" in name}


def test_damage_changes_the_files_of_a_job(job: Idle, signals: list[tuple[int, str]]) -> None:
    for number in (1, 2):
        (job.directory / "snapshots" / f"idle-{number}").mkdir(parents=True)
        (job.directory / "snapshots" / f"idle-{number}" / "ledger.json").write_text("{...}")
    (job.directory / "status.json").write_text("{...}")
    BY_NAME["master damage snapshot and kill"].action.inject(job, job.master_pids(), 1.0)
    sizes = {p.parent.name: p.stat().st_size for p in job.directory.rglob("ledger.json")}
    assert sizes == {"idle-1": 5, "idle-2": 2}, "never both"
    assert signals == [(1001, "SIGKILL")]
    BY_NAME["everything damage files and kill"].action.inject(job, [1001, 1010], 1.0)
    assert (job.directory / "status.json").stat().st_size < 2
    assert signals[1:] == [(1001, "SIGKILL"), (1010, "SIGKILL")]


def test_a_set_clock_is_that_of_all_processes_of_a_job(job: Idle) -> None:
    set_clock = BY_NAME["job set clock of"]
    shifts = []
    for by_s in set_clock.durations_s:
        set_clock.action.inject(job, [], by_s)
        shown = subprocess.check_output(["date", "+%s"], env=os.environ | job.clock.environ)
        shifts.append(int(shown) - time.time())
    assert shifts == pytest.approx(set_clock.durations_s, abs=60)


def test_changed_data_has_the_same_size_and_number_of_records(tmp_path: Path) -> None:
    for table in (False, True):
        kind = audits.counting(tmp_path, "async", 0, 70, 1, table=table)
        inputs = Inputs(kind.inputs, tmp_path / f"copy-{table}")
        before = {file: file.read_bytes() for file in inputs.data}
        for number in range(3):
            inputs.rewrite_data(number)
        assert inputs.rewritten == set(before)
        for file, content in before.items():
            assert file.read_bytes() != content
            assert file.stat().st_size == len(content)
            assert recordio.open_source(str(file)).count()
        inputs.restore_data()
        assert {file: file.read_bytes() for file in inputs.data} == before


def test_edited_code_has_other_gradients(tmp_path: Path) -> None:
    kind = audits.counting(tmp_path, "async", 0, 70, 1)
    inputs = Inputs(kind.inputs, tmp_path / "copy")
    inputs.edit_code()
    edited = {
        file.name for file in (inputs.folder / "zoo").rglob("*.py") if "-2 *" in file.read_text()
    }
    assert {"counting.py", "mnist_functional_api.py"} <= edited


@pytest.mark.parametrize(
    ("what", "command"),
    [("stop", ("stop", "idle")), ("delete", ("delete", "idle", "--stop", "--yes"))],
)
def test_a_request_to_end_is_repeated_until_it_is_acknowledged(
    job: Idle, what: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "REQUESTED_AFTER_S", 0.0)
    job.answers = iter([1, 1, 0])
    ending = program.EndingRequest(job, what)
    eventually(lambda: ending.is_over, "it was acknowledged")
    assert job.commands == [command] * 3
