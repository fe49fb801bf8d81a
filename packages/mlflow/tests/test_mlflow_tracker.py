"""MLflow's settings, its model layout, and a server that is away; tests/ has a real server."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from edl.app import experiment_tracker
from edl.core.tracking import KerasModel, Measurement
from edl.ports.experiment_tracker import TrackerUnavailable
from edl_mlflow import tracker as mlflow_tracker
from edl_proto.errors import EdlError, ErrorCode

MODEL = {"keras": "3.15.1", "tensorflow": "2.21.0", "python": "3.11.7"}


def test_a_server_must_be_named() -> None:
    with pytest.raises(EdlError, match="MLFLOW_TRACKING_URI is not set") as raised:
        mlflow_tracker.from_environment({})
    assert raised.value.code == ErrorCode.USAGE


def test_a_server_that_is_away_is_named_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        port = unused.getsockname()[1]
        tracker = mlflow_tracker.from_environment(
            {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
        )
        with pytest.raises(TrackerUnavailable) as raised:
            tracker.open("digits", "then", 0.0)
    assert str(raised.value) == f"no connection to 127.0.0.1:{port}"


class _FakeClient:
    """Has one run of the job."""

    def search_runs(self, *_: object, **__: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(info=SimpleNamespace(run_id="r", status="RUNNING"))]


def test_the_password_of_an_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {
        "MLFLOW_TRACKING_URI": "https://me:very-secret@tracker.example.com/",
        "MLFLOW_EXPERIMENT_ID": "1",
    }
    tracker = mlflow_tracker.from_environment(environ)
    monkeypatch.setattr(tracker, "_connected", _FakeClient())
    assert tracker.open("digits", "then", 0.0) == (
        "https://tracker.example.com/#/experiments/1/runs/r"
    )
    monkeypatch.setattr(tracker, "_connected", object())
    monkeypatch.setattr(tracker, "_find_experiment", lambda: refuse(environ["MLFLOW_TRACKING_URI"]))
    monkeypatch.setattr(tracker, "_experiment_id", "")
    with pytest.raises(TrackerUnavailable) as raised:
        tracker.open("digits", "then", 0.0)
    assert str(raised.value) == "https://tracker.example.com/ refuses"


def refuse(address: str) -> str:
    raise OSError(f"{address} refuses")


class _LimitedClient(_FakeClient):
    """Takes what a server takes in one call: 100 parameters of 6,000 letters, 1,000 metrics."""

    def __init__(self) -> None:
        self.params: dict[str, str] = {"known": "as it is"}
        self.steps: list[int] = []

    def get_run(self, run_id: str) -> SimpleNamespace:
        return SimpleNamespace(data=SimpleNamespace(params=dict(self.params)))

    def log_batch(self, run_id: str, metrics: Sequence[Any] = (), params: Any = ()) -> None:
        assert len(metrics) <= 1000
        assert len(params) <= 100
        assert all(len(one.value) <= 6000 for one in params)
        self.params |= {one.key: one.value for one in params}
        self.steps += [one.step for one in metrics]


def test_what_a_server_does_not_take_at_once_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1", "MLFLOW_EXPERIMENT_ID": "1"}
    tracker, client = mlflow_tracker.from_environment(environ), _LimitedClient()
    monkeypatch.setattr(tracker, "_connected", client)
    tracker.open("digits", "then", 0.0)
    given = {"known": "other", "long": "x" * 9000} | {f"p{n}": str(n) for n in range(250)}
    tracker.log_parameters(given)
    assert client.params == {**given, "known": "as it is", "long": "x" * 6000}
    tracker.log_metrics([Measurement("loss", 1.0, step, 0.0) for step in range(2500)])
    assert client.steps == list(range(2500))


def test_a_model_has_the_layout_of_mlflow(tmp_path: Path) -> None:
    file, folder = tmp_path / "model.keras", tmp_path / "layout"
    file.write_bytes(b"weights")
    folder.mkdir()
    mlflow_tracker.write_layout(folder, KerasModel(file, 7, MODEL), "run", "m-1")
    described = yaml.safe_load((folder / "MLmodel").read_text())
    flavor = described["flavors"]["keras"]
    assert (folder / flavor["data"] / "model.keras").read_bytes() == b"weights"
    assert flavor["keras_version"] == "3.15.1"
    assert described["flavors"]["python_function"]["loader_module"] == "mlflow.keras"
    needed = (folder / "requirements.txt").read_text().split()
    assert {"keras==3.15.1", "tensorflow==2.21.0"} < set(needed)


def test_the_command_finds_it_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(EdlError, match="MLFLOW_TRACKING_URI is not set"):
        experiment_tracker("mlflow")
