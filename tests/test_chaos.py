"""A short spell of what ``./dev chaos`` does for long."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from chaos.faults import FAULTS, schedule

MINUTES = 0.6


@pytest.mark.parametrize(("servers", "update"), [("0", "async"), ("2", "sync")])
def test_a_short_storm_over_every_role_loses_and_repeats_nothing(servers: str, update: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "chaos", "--minutes", str(MINUTES)),
            *("--seed", "3", "--every", "2", "--model", "counting", "--records", "20011"),
            *("--servers", servers, "--update", update),
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
    first = list(itertools.islice(schedule(5, 2.0), 200))
    assert first == list(itertools.islice(schedule(5, 2.0), 200))
    assert first != list(itertools.islice(schedule(6, 2.0), 200))
    assert {fault.kind for fault in first} == set(FAULTS)
    assert 1.5 < sum(fault.after_s for fault in first) / 200 < 2.5
