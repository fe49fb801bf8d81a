"""The handle of a job of ``fit``, with a backend that answers at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import elasticdl
from edl.plugins.job_status import Failure, JobState, JobStatus
from edl.plugins.jobs import NotebookDisplay
from edl.plugins.options import Verb
from edl_keras import fit_job
from edl_keras.fit_job import FitJob
from edl_keras.model_file import REPORT

LINES = [
    "a line of TensorFlow",
    REPORT + json.dumps({"epoch": 0, "logs": {"val_loss": 3.0, "loss": 2.0}}),
    REPORT + json.dumps({"epoch": 1, "logs": {"val_loss": 2.0, "loss": 9.0}}),
    REPORT + json.dumps({"epoch": 1, "logs": {"val_loss": 2.0, "loss": 1.0}}),  # again
]


class StillBackend:
    """Has one job, whose state does not change."""

    def __init__(self, status: JobStatus) -> None:
        self.state = status
        self.changed: list[str] = []
        self.continuation = SimpleNamespace(next_steps=lambda status: "edl resume j")

    def status(self, name: str, *, ask: bool = True) -> Any:
        over = self.state.state.is_over
        return SimpleNamespace(status=self.state, is_over=over, answered=True)

    def logs(self, name: str, choice: Any) -> Any:
        lines = [SimpleNamespace(text=line) for line in LINES]
        return SimpleNamespace(poll=lambda final=False: iter(lines))

    def events(self, name: str, after: int = 0) -> list[Any]:
        return []

    def change(self, name: str, setting: Any) -> Any:
        self.changed.append(str(setting))
        return setting

    def finalize(self, name: str, status: JobStatus) -> JobStatus:
        return status

    def close(self) -> None:
        pass


def make_model() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StillBackend]:
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    output = tmp_path / "home" / "fits" / "j-12345678" / "model"
    output.mkdir(parents=True)
    make_model().save(output / "model.keras")
    found = StillBackend(
        JobStatus("j", Verb.TRAIN, JobState.SUCCEEDED, num_epochs=2, output=str(output))
    )

    class Catalog:
        def __enter__(self) -> Any:
            return SimpleNamespace(find=lambda name: found)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(fit_job, "job_catalog", Catalog)
    return found


def test_waiting_gives_history_and_weights(
    backend: StillBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model()
    before = model.get_weights()[0]
    job = elasticdl.attach("j", model)
    history = job.wait()
    assert history.history == {"loss": [2.0, 1.0], "val_loss": [3.0, 2.0]}
    assert not np.array_equal(model.get_weights()[0], before)
    assert not Path(backend.state.output).exists()
    assert capsys.readouterr().out.splitlines()[1:] == [
        *("Epoch 1/2 - 0s - loss: 2 - val_loss: 3", "Epoch 2/2 - 0s - loss: 9 - val_loss: 2")
    ]
    assert job.wait().epoch == [0, 1], "again: the weights are in the model already"
    with pytest.raises(elasticdl.ModelFileError, match="is not there any more"):
        elasticdl.attach("j", make_model()).wait()


def test_progress_and_metrics_are_plain_values(backend: StillBackend) -> None:
    job = FitJob("j")
    assert job.metrics()[1] == {"epoch": 2, "loss": 1.0, "val_loss": 2.0}
    assert job.progress()["state"] == "SUCCEEDED"
    assert job.progress()["loss"] is None


def test_the_number_of_workers_is_one_or_a_range(backend: StillBackend) -> None:
    job = FitJob("j")
    job.scale(4)
    job.scale("2:8")
    assert backend.changed == ["4", "2:8"]
    with pytest.raises(elasticdl.EdlError, match="'many' is no number of workers"):
        job.scale("many")


def test_a_failure_before_the_first_epoch_is_mended_in_the_program(backend: StillBackend) -> None:
    failure = Failure("NAN_LOSS", "the loss is nan", "program", "Lower the rate. edl resume j")
    output = backend.state.output
    backend.state = JobStatus("j", Verb.TRAIN, JobState.FAILED, failure=failure, output=output)
    with pytest.raises(elasticdl.ModelFileError, match="the loss is nan") as caught:
        FitJob("j", make_model()).wait()
    assert caught.value.remedy == "Lower the rate. Then call fit again."
    assert not Path(output).exists()


def test_ctrl_c_says_how_to_return(backend: StillBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str, *, ask: bool = True) -> Any:
        if ask:
            raise KeyboardInterrupt
        return SimpleNamespace(status=backend.state)

    monkeypatch.setattr(backend, "status", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        FitJob("j", make_model(), verbose=False).wait()
    assert "elasticdl.attach('j', model).wait() returns to it" in caught.value.__notes__[0]


class Panels(NotebookDisplay):
    """Collects what a notebook would show."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Any] = []

    def update(self, status: JobStatus, rows: Any = ()) -> None:
        self.rows.append(rows)


def test_a_notebook_shows_a_panel_instead_of_lines(
    backend: StillBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    panels: list[Panels] = []

    def make_panel() -> Panels:
        panels.append(Panels())
        return panels[-1]

    monkeypatch.setattr(fit_job, "in_notebook", lambda: True)
    monkeypatch.setattr(fit_job, "command_name", lambda: "%edl")
    monkeypatch.setattr(fit_job, "NotebookDisplay", make_panel)
    job = FitJob("j", make_model())
    job.wait()
    assert capsys.readouterr().out == "The job j trains; %edl dashboard j shows it.\n"
    assert panels[0].rows[-1] == job.metrics()
    FitJob("j", verbose=False).wait()
    assert len(panels) == 1


def test_a_handle_is_shown_as_its_job(
    backend: StillBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = FitJob("j")._repr_mimebundle_()
    assert "  loss, validation  3 █▁ 2" in shown["text/plain"].splitlines()
    assert "<img" in shown["text/html"]

    def fail(name: str, *, ask: bool = True) -> Any:
        raise elasticdl.EdlError(1, "the job is gone")

    monkeypatch.setattr(backend, "status", fail)
    assert FitJob("j")._repr_mimebundle_() == {"text/plain": "<FitJob j>"}
