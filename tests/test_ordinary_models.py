"""Model files as a user of Keras writes them need no option, and learn as with ``fit``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import Edl

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import ordinary_models
from results_file import ResultsFile

RESULTS = Path(__file__).parents[1] / "bench" / "results" / "ordinary_models.jsonl"


@pytest.mark.parametrize("model", ordinary_models.CASES)
def test_a_file_passes_the_trial_run_and_will_have_all_forms(
    model: str, edl: Edl, tmp_path: Path
) -> None:
    workshop = ordinary_models.Workshop(tmp_path / "workshop")
    data = workshop.prepare(model) / ordinary_models.CASES[model].train
    zoo = str(tmp_path / "workshop" / "zoo")
    done = edl("zoo", "check", "--model-zoo", zoo, "--model-def", model, "--data", str(data))
    assert "warning" not in done.err


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
@pytest.mark.parametrize("model", ordinary_models.CASES)
def test_jobs_were_measured_to_learn_as_with_fit(model: str, metric: str) -> None:
    """One worker is ``fit``; two are ``fit`` with twice the minibatch: five seeds each."""
    results = ResultsFile(RESULTS, ordinary_models.NAMES)
    fit, one, two, twice = ordinary_models.find_values(results, model, metric, seeds=5)
    assert len(fit) == len(one) == len(two) == len(twice) == 5
    assert ordinary_models.is_noise(one, fit)
    assert ordinary_models.is_noise(two, twice)
