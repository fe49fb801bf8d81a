"""Model files as a user of Keras writes them need no option."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import Edl

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import ordinary_models


@pytest.mark.parametrize("model", ordinary_models.CASES)
def test_a_file_passes_the_trial_run_and_will_have_all_forms(
    model: str, edl: Edl, tmp_path: Path
) -> None:
    workshop = ordinary_models.Workshop(tmp_path / "workshop")
    data = workshop.prepare(model) / ordinary_models.CASES[model].train
    zoo = str(tmp_path / "workshop" / "zoo")
    done = edl("zoo", "check", "--model-zoo", zoo, "--model-def", model, "--data", str(data))
    assert "warning" not in done.err
