"""Names of Keras in place of definitions pass the look at the source text; misspelt ones do not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edl.adapters import model_zoo
from edl_proto.errors import EdlError


def job(zoo: Path, **named: str) -> Any:
    options = dict.fromkeys(model_zoo._OVERRIDES, "")
    return SimpleNamespace(model_zoo=str(zoo), model_def="mine", **(options | named))


def test_names_that_only_keras_has_are_left_to_a_worker(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("model = 1\ndef loss(labels, predictions): ...\n")
    model_zoo.check(job(tmp_path, loss="mse", optimizer="adam", eval_metrics_fn="accuracy,mae"))
    with pytest.raises(EdlError, match=r"mine\.py has no lost, which --loss names"):
        model_zoo.check(job(tmp_path, loss="lost"))
    with pytest.raises(EdlError, match=r"mine\.py has no mse"):
        model_zoo.check(job(tmp_path, dataset_fn="mse"))


def test_names_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "models.py").write_text("class Credit: ...\n")
    (tmp_path / "mine" / "inputs.py").write_text("def process(dataset, mode): ...\n")
    given = job(tmp_path, input_fn="mine.process")
    given.model_def = "mine.Credit"
    model_zoo.check(given)
    assert model_zoo.source_of(tmp_path, "mine.Credit") == ("class Credit: ...\n", "Credit")
    (tmp_path / "mine" / "others.py").write_text("def process(dataset, mode): ...\n")
    with pytest.raises(EdlError, match=r"mine\.inputs\.process, mine\.others\.process") as caught:
        model_zoo.check(given)
    assert caught.value.remedy == "Name one: --input-fn mine.inputs.process"


def test_a_byte_order_mark_is_no_part_of_a_model_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("\ufeffdef model(size=1): ...\n", encoding="utf-8")
    model_zoo.check(job(tmp_path))
    parameters = model_zoo.parameters_of(tmp_path, "mine.model")
    assert parameters is not None
    assert "size" in parameters


def test_a_colon_instead_of_a_dot(tmp_path: Path) -> None:
    given = job(tmp_path)
    given.model_def = "mine:model"
    with pytest.raises(EdlError) as caught:
        model_zoo.check(given)
    assert caught.value.remedy == "Write a dot: --model-def mine.model"
