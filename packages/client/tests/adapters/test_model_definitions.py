"""Jobs that their first worker would refuse are refused before they start, as far as texts show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edl.adapters import model_definitions
from edl.core.options import Verb
from edl.core.submission import Submission
from edl_proto.errors import EdlError

MODEL = """import keras
model = keras.Sequential([keras.layers.Dense(1)])
loss = "mse"

def optimizer(learning_rate=0.1):
    return keras.optimizers.SGD(learning_rate)
"""


def submit(zoo: Path, source: str, **options: Any) -> None:
    (zoo / "mine.py").write_text(source)
    defaults: dict[str, Any] = {"validation_data": (), "params": "", "window": None}
    names = ("input_fn", "dataset_fn", "loss", "optimizer", "eval_metrics_fn")
    job = Submission.__new__(Submission)
    given = {"verb": Verb.TRAIN, "model_zoo": str(zoo), "model_def": "mine"}
    for name, value in {**defaults, **dict.fromkeys(names, ""), **given, **options}.items():
        object.__setattr__(job, name, value)
    model_definitions.check(job)


@pytest.mark.parametrize(
    ("params", "remedy"),
    [("learning_rat=0.1", "Did you mean learning_rate?"), ("lr=1", "Did you mean learning_rate?")],
)
def test_a_parameter_that_nothing_takes(tmp_path: Path, params: str, remedy: str) -> None:
    with pytest.raises(EdlError, match="takes the parameter l") as caught:
        submit(tmp_path, MODEL, params=params)
    assert caught.value.remedy == remedy
    assert caught.value.where == f"--params, {params.partition('=')[0]}"


@pytest.mark.parametrize(
    ("more", "params", "options"),
    [
        ("", "learning_rate=0.2", {}),
        ("", "delta=0.2", {"loss": "keras.losses.Huber"}),
        ("", "lr=", {}),
        ("def build_model(hp): pass", "units=3", {}),
        ("def callbacks(**settings): pass", "patience=3", {}),
    ],
)
def test_parameters_that_may_be_taken(
    tmp_path: Path, more: str, params: str, options: dict[str, Any]
) -> None:
    submit(tmp_path, f"{MODEL}\n{more}\n", params=params, **options)


MONITORS = {
    "default": "callbacks = [keras.callbacks.EarlyStopping(patience=3)]",
    "named": "def callbacks():\n    return [ReduceLROnPlateau(monitor='val_loss')]",
    "first": "callbacks = [EarlyStopping('val_accuracy')]",
}


@pytest.mark.parametrize("how", MONITORS)
def test_a_monitor_of_validation_data_without_any(tmp_path: Path, how: str) -> None:
    source = f"{MODEL}\n{MONITORS[how]}\n"
    with pytest.raises(EdlError, match=r"monitors 'val_.*and the job has no valid") as caught:
        submit(tmp_path, source)
    line = 9 if how == "named" else 8
    assert caught.value.where == f"{tmp_path}/mine.py:{line}, callbacks"
    submit(tmp_path, source, validation_data=("v.csv",))


@pytest.mark.parametrize(
    "more",
    [
        "callbacks = [keras.callbacks.EarlyStopping(monitor='loss')]",
        "callbacks = [keras.callbacks.CSVLogger('log.csv')]",
        "def callbacks(stop=0):\n    return [EarlyStopping()] if stop else []",
        "def train():\n    model.fit(x, callbacks=[keras.callbacks.EarlyStopping()])",
        "callbacks = [EarlyStopping(**settings)]",
        "callbacks = [EarlyStopping(monitor=NAME)]",
    ],
)
def test_callbacks_that_may_be_right(tmp_path: Path, more: str) -> None:
    submit(tmp_path, f"{MODEL}\n{more}\n")
