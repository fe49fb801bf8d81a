"""A short spell of what ``./dev chaos`` does for long."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from chaos.faults import FAULTS, STORM_S, schedule

MINUTES = 0.6
QUICK = [kind.name for kind in FAULTS if max(kind.durations_s) < 30 and not kind.role.leaves_none]
"""Faults after which a job soon trains on."""


@pytest.mark.parametrize(("servers", "update"), [("0", "async"), ("2", "sync")])
def test_a_short_storm_over_every_role_loses_and_repeats_nothing(servers: str, update: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "chaos", "--minutes", str(MINUTES)),
            *("--seed", "3", "--every", "2", "--model", "counting", "--records", "20011"),
            *("--servers", servers, "--update", update, "--faults", *QUICK),
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
    assert "(pid " in done.stdout, "nothing was done to anybody"


def test_a_seed_is_always_the_same_schedule() -> None:
    first = list(itertools.islice(schedule(5, 2.0), 400))
    assert first == list(itertools.islice(schedule(5, 2.0), 400))
    assert first != list(itertools.islice(schedule(6, 2.0), 400))
    assert {fault.kind for fault in first} == set(FAULTS)
    assert 1.5 < sum(fault.after_s for fault in first) / 400 < 2.5
    stormy = list(itertools.islice(schedule(5, 2.0, storm=8), 400))
    assert sum(fault.after_s == STORM_S for fault in stormy) == 350
    assert 1.5 < sum(fault.after_s for fault in stormy) / 400 < 2.5
