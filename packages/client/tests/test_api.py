"""The Python API, in this process, with the stand-in as master."""

from __future__ import annotations

import atexit
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from conftest import Edl, eventually

import elasticdl
from edl import api, app
from edl.core.options import Verb, options_of, python_types
from edl.core.platforms import PLATFORMS
from edl.use_cases.job_catalog import JobCatalog
from edl_proto.errors import EdlError, ErrorCode


@pytest.fixture
def job(tidy: Edl, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name, value in tidy.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tidy.place)
    return {"model_zoo": "zoo", "model_def": "mine", "data": "data/*.recordio", "output": "out"}


def test_training_returns_what_json_would_say(
    job: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = elasticdl.train(**job, num_epochs=2, num_workers="1:2", params={"lr": 0.1})
    assert result.state == result["state"] == "SUCCEEDED"
    assert result.records_trained == 2000
    assert result["metrics"] == result.metrics == {"accuracy": 0.9712}
    assert result.output == str(tmp_path / "out")
    assert dict(result) == result.to_dict()
    assert "error" not in result
    assert capfd.readouterr() == ("", "")
    with pytest.raises(AttributeError):
        result.state = "x"


def test_a_job_trains_by_all_reduce(job: dict[str, Any], tidy: Edl) -> None:
    elasticdl.train(**job, name="instep", strategy="allreduce", num_workers=2)
    spec = json.loads((tidy.job_dir("instep") / "spec.json").read_text())
    assert spec["training"]["update"] == "REPLICATED"


def test_progress_is_shown_when_asked(
    job: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    elasticdl.train(**job, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "page: http://" in err
    assert "of 1,000 records" in err


def test_a_failed_job_raises(job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_SCENARIO", "fail")
    with pytest.raises(EdlError) as caught:
        elasticdl.train(**job)
    assert caught.value.code == ErrorCode.MODEL_CONTRACT
    assert "line 99" in caught.value.detail


@pytest.mark.parametrize(
    ("changed", "kind", "remedy"),
    [
        ({"num_worker": 2}, elasticdl.UsageError, "Did you mean num_workers?"),
        ({"num_workers": 0}, elasticdl.UsageError, 'For example: num_workers="1:4"'),
        ({"model_def": None}, elasticdl.UsageError, 'elasticdl.train(model_zoo="model_zoo"'),
        ({"data": "nothing-*"}, elasticdl.DataError, ""),
        ({"model_def": "his"}, elasticdl.ModelFileError, ""),
        ({"output": "zoo"}, elasticdl.ExistsError, "output"),
        (
            {"strategy": "allreduce", "local_steps": 2},
            elasticdl.UsageError,
            'Leave local_steps out, or use strategy="parameter-server".',
        ),
    ],
)
def test_errors_are_in_the_words_of_python(
    job: dict[str, Any], changed: dict[str, Any], kind: type[EdlError], remedy: str
) -> None:
    with pytest.raises(kind) as caught:
        elasticdl.train(**{**job, **changed})
    error = caught.value
    assert remedy in error.remedy
    assert "--" not in f"{error.what}{error.where}{error.remedy}"
    assert error.code == elasticdl.ErrorCode[error.code_name] == ErrorCode.Value(error.code_name)
    assert error.code_name in repr(error.code)
    # The line of the caller, and the one that raises; no cause, and nothing within edl.
    assert [frame.name for frame in caught.traceback][1:] == ["call"]
    assert (error.__cause__, error.__context__) == (None, None)


def test_data_that_is_no_name(job: dict[str, Any]) -> None:
    job["data"] = range(2)  # as a tf.data.Dataset
    with pytest.raises(elasticdl.UsageError, match="a list of texts, not range of int"):
        elasticdl.train(**job)


def test_a_job_that_is_not_there_is_not_found(job: dict[str, Any]) -> None:
    for call in (elasticdl.resume, elasticdl.export):
        with pytest.raises(elasticdl.NotFoundError):
            call("nowhere")


def test_what_is_wrong_raises_before_anything_starts(job: dict[str, Any], tidy: Edl) -> None:
    for changed, code in (
        ({"num_worker": 2}, ErrorCode.USAGE),
        ({"num_workers": 0}, ErrorCode.USAGE),
        ({"data": "nothing-*"}, ErrorCode.DATA_NOT_FOUND),
        ({"data": []}, ErrorCode.USAGE),
        ({"model_def": "his"}, ErrorCode.MODEL_NOT_FOUND),
        ({"params": {"a": object()}}, ErrorCode.USAGE),
    ):
        with pytest.raises(EdlError) as caught:
            elasticdl.train(**{**job, **changed})
        assert caught.value.code == code, changed
        assert caught.value.remedy
    assert not tidy.home.exists()


def test_a_detached_job_is_found_again(
    job: dict[str, Any],
    tidy: Edl,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EDL_SCENARIO", "endless")
    result = elasticdl.train(**job, name="away", detach=True)
    assert result.state in ("STARTING", "RUNNING")
    assert result.dashboard_url
    elasticdl.train(**job, name="away", detach=True, progress=True)
    assert "away runs already, page: http://" in capfd.readouterr().err
    tidy("stop", "away")
    with pytest.raises(EdlError) as caught:
        elasticdl.train(**job, name="away")
    assert caught.value.code == ErrorCode.JOB_EXISTS


def test_a_timeout_stops_the_job(job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_SCENARIO", "endless")
    with pytest.raises(EdlError) as caught:
        elasticdl.train(**job, timeout=0.5)
    assert caught.value.code == ErrorCode.TIMED_OUT


def test_no_zombie_is_left_in_a_program_that_goes_on(job: dict[str, Any], tidy: Edl) -> None:
    elasticdl.train(**job, name="reaped")
    pid = json.loads((tidy.job_dir("reaped") / "master.json").read_text())["pid"]
    # A zombie keeps its entry until a process waits for it.
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the master has been waited for")


def test_a_program_that_goes_on_holds_no_connection(
    job: dict[str, Any], tidy: Edl, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, closed = list[JobCatalog](), list[JobCatalog]()

    class Observed(JobCatalog):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

        def close(self) -> None:
            super().close()
            closed.append(self)

    monkeypatch.setattr("edl.app.JobCatalog", Observed)
    elasticdl.train(**job, name="first")
    handlers = list[Callable[..., object]]()
    monkeypatch.setattr(atexit, "register", handlers.append)
    for refused in (
        lambda: elasticdl.train(**job, name="second"),  # the output is there
        lambda: elasticdl.resume("first"),
        lambda: elasticdl.export("first", output=str(tidy.place / "other")),
    ):
        with pytest.raises(EdlError):
            refused()
    assert len(made) == 4
    assert closed == made
    assert not handlers


def test_what_a_command_leaves_open_is_closed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Backend:
        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr("pkgutil.resolve_name", lambda name: Backend)
    catalog = app.job_catalog()
    app._close()
    assert set(closed) >= set(catalog._backends)
    assert len(catalog._backends) == len(PLATFORMS)


@pytest.mark.parametrize(
    ("verb", "function", "types"),
    [
        (Verb.TRAIN, api.train, python_types.TrainOptions),
        (Verb.EVALUATE, api.evaluate, python_types.EvaluateOptions),
        (Verb.PREDICT, api.predict, python_types.PredictOptions),
    ],
)
def test_signatures_and_types_are_those_of_the_table(verb: Verb, function: Any, types: Any) -> None:
    hints = get_type_hints(types)
    assert hints.keys() == {option.name for option in options_of(verb)}
    parameters = dict(inspect.signature(function).parameters)
    assert parameters.pop("progress").annotation == (bool | None)
    assert {name: item.annotation for name, item in parameters.items()} == hints
    for option in options_of(verb):
        required = parameters[option.name].default is inspect.Parameter.empty
        assert required == option.required, option.name
