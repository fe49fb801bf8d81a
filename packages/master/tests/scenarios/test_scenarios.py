"""Every transcript in this folder happens exactly as it is written.

To write a new one, write its facts and run ``EDL_REWRITE_SCENARIOS=1 pytest`` here; then read
which effects the state machine answered with: the test demands exactly these from then on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from transcript import rewrite

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_transcript_matches(path: Path) -> None:
    told = rewrite(path)
    if os.environ.get("EDL_REWRITE_SCENARIOS"):
        path.write_text(told)
    assert told.splitlines() == path.read_text().splitlines()


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) > 20
