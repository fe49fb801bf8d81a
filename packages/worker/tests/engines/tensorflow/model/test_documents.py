"""The examples in the documentation work."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from example_data import example, float_images
from plain_loop import batches, evaluate, train
from zoo_folder import HELPERS, ZooFolder

from edl_compat import removed_names
from edl_worker.engines.tensorflow.model import check_model_file
from edl_worker.engines.tensorflow.model.adapters.optimizer import OPTIMIZERS
from edl_worker.model_file.arguments import PARAMETER_NAMES
from edl_worker.model_file.forms.model_function import FUNCTION_NAMES
from elasticdl.python.common.constants import Mode

ROOT = Path(__file__).parents[6]
REFERENCE = ROOT / "docs" / "model-file.md"
LESSON = ROOT / "model_zoo" / "README.md"


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.S)


def test_the_model_file_of_the_reference_trains(zoo: ZooFolder) -> None:
    zoo.write("digits.py", blocks(REFERENCE)[0], imports=False)
    records = float_images(64)
    assert check_model_file(zoo.reference("digits"), sample=records) == []
    losses = train(zoo.load("digits", seed=1), records, epochs=4)
    assert np.mean(losses[-4:]) < 0.5 * np.mean(losses[:4])


@pytest.mark.parametrize("form", ["model", "build_model"])
def test_the_model_file_of_the_tutorial_trains(zoo: ZooFolder, form: str) -> None:
    parts = blocks(LESSON)
    imports = "import keras\nimport tensorflow as tf\n"
    chosen = parts[:1] if form == "model" else [imports, parts[1]]
    zoo.write("spirals.py", "\n".join([*chosen, *parts[2:]]), imports=False)
    random = np.random.default_rng(6)
    points = random.normal(size=(200, 2)).astype(np.float32)
    records = [
        example(point=point, side=np.array([float(point.sum() > 0)], np.float32))
        for point in points
    ]
    model_file = zoo.load("spirals", seed=1)
    losses = train(model_file, records, epochs=5)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    metrics = evaluate(model_file, records)
    assert set(metrics) == {"loss", "auc", "near"}
    assert metrics["auc"] > 0.95
    without = [example(point=point) for point in points[:5]]
    (batch,) = batches(model_file, without, mode=Mode.PREDICTION)
    assert batch.size == 5


def test_the_reference_lists_all_names_of_the_code() -> None:
    text = REFERENCE.read_text()
    for role in ("labels", "outputs", "dataset", "records", "mode"):
        for name in PARAMETER_NAMES[role]:
            assert f"`{name}`" in text, name
    for name in (*removed_names.MOVED, *removed_names.CASTS):
        assert f"`tf.{name}`" in text, name
    for name in removed_names.OPTIMIZERS:
        assert name.removesuffix("Optimizer") in text, name
    for name in (*OPTIMIZERS, *FUNCTION_NAMES):
        assert name in text, name


def test_the_tutorial_lists_every_model_of_the_zoo() -> None:
    text = LESSON.read_text()
    for path in (ROOT / "model_zoo").rglob("*.py"):
        name = path.relative_to(ROOT / "model_zoo").as_posix()
        if name in HELPERS:
            continue
        dotted = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert f"`{dotted}" in text, dotted
