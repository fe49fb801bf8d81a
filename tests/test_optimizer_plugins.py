"""Optimizers whose update rules come from a package of a third party."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Edl
from safetensors.numpy import load_file

from edl_master.core.parameters.layout import ArenaKey, Layout, Variable
from edl_master.core.parameters.optimizers import RULES, parse_optimizer
from edl_master.core.parameters.updater import Updater
from edl_worker.engines.tensorflow.model.adapters.optimizer import OPTIMIZERS
from tests.test_sync_training import MODEL, RECORDS, make_problem

PACKAGE = ROOT / "tests" / "plugins" / "optimizers"
EPOCHS = 30


def test_a_job_with_a_rule_of_another_package_equals_keras(
    edl: Edl, plugin_env: dict[str, str], tmp_path: Path
) -> None:
    """It needs whole variables, which three servers have."""
    chosen = "RowScaled(0.004, rho=0.8, use_ema=True, ema_momentum=0.8)"
    text = MODEL.replace("keras.optimizers.Adam(0.05)", chosen)
    text = (PACKAGE / "keras_optimizers.py").read_text() + text
    zoo, data, expected = make_problem(tmp_path, EPOCHS, text)
    edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "small", "--data", str(data), "-q"),
        *("--num-epochs", str(EPOCHS), "--minibatch-size", str(RECORDS)),
        *("--records-per-task", str(RECORDS)),
        *("--parameter-servers", "3", "--output", str(tmp_path / "model")),
        env=plugin_env,
    )
    found = sorted(load_file(tmp_path / "model" / "parameters.safetensors").values(), key=np.size)
    for ours, keras in zip(found, sorted(expected, key=np.size), strict=True):
        np.testing.assert_allclose(ours, keras, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["SignMomentum", "RowScaled"])
@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 0.05, "clipnorm": 0.7}, {"use_ema": True, "clipvalue": 0.5}]
)
def test_the_rules_of_the_example_equal_their_keras_classes(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = pytest.importorskip("keras")
    monkeypatch.syspath_prepend(PACKAGE)
    rules = importlib.import_module("example_optimizers")
    classes = importlib.import_module("keras_optimizers")
    random = np.random.default_rng(3)
    shapes = (6, 7), (7,), (2, 3, 4)
    optimizer = getattr(classes, name)(0.01, **options)
    variables = [keras.Variable(random.normal(size=s), dtype="float32") for s in shapes]
    optimizer.build(variables)
    parsed = parse_optimizer(keras.optimizers.serialize(optimizer), lambda n: getattr(rules, n))
    layout = Layout(Variable(str(i), s, "float32", True) for i, s in enumerate(shapes))
    updater = Updater(parsed, layout, None)
    key = ArenaKey(True, "float32")
    values = {key: np.concatenate([v.numpy().ravel() for v in variables])}
    for _ in range(40):
        gradients = [random.normal(size=s).astype(np.float32) for s in shapes]
        optimizer.apply(gradients, variables)
        updater.apply(values, {key: np.concatenate([g.ravel() for g in gradients])})
    expected = np.concatenate([v.numpy().ravel() for v in variables])
    np.testing.assert_allclose(values[key], expected, rtol=2e-5, atol=2e-5)


def test_workers_accept_the_optimizers_that_the_master_has() -> None:
    assert set(RULES) == OPTIMIZERS
