"""A job is resumed with the code that was submitted, unless a person chooses other code."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edl.adapters import model_zoo
from edl.core.job_status import JobState, JobStatus
from edl.core.options import Verb
from edl.use_cases.job_resumption import resume_job
from edl_proto.errors import EdlError


class Backend:
    """A backend of one job that is over, and what its continuation was asked for."""

    def __init__(self, zoo: Path, platform: str = "processes", verb: Verb = Verb.TRAIN) -> None:
        self.platform = platform
        self.state = JobState.FAILED
        self.asked: list[dict[str, Any]] = []
        self.model: dict[str, Any] = {"model_def": "m", "model_zoo": str(zoo)}
        self.model["code"] = {"folder": str(zoo), "files": dict(model_zoo.hash_code(zoo, ["m"]))}
        self.continuation = SimpleNamespace(resume=self.resume)
        self.verb = verb

    def status(self, name: str, *, ask: bool) -> Any:
        status = JobStatus(name, self.verb, self.state)
        return SimpleNamespace(
            status=status,
            is_over=status.state.is_over,
            description=lambda: {"model": self.model},
        )

    def resume(self, name: str, say: Any, **options: Any) -> bool:
        self.asked.append({key: value for key, value in options.items() if value})
        return True


def resume(backend: Any, code: str = "", num_epochs: int | None = None) -> None:
    resume_job(backend, model_zoo, "job", lambda _: None, code=code, num_epochs=num_epochs)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text("import helper")
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "other.py").write_text("")
    return tmp_path


def test_files_that_differ_are_named(zoo: Path) -> None:
    backend = Backend(zoo)
    (zoo / "other.py").write_text("of no concern")
    resume(backend)
    (zoo / "m.py").write_text("import more")
    (zoo / "more.py").write_text("")
    with pytest.raises(EdlError, match=r"(?m)changed m\.py; added more\.py; removed helper\.py$"):
        resume(backend)
    assert backend.asked == [{}]
    with pytest.raises(EdlError, match="neither job nor new"):
        resume(backend, "old")
    resume(backend, "job")
    resume(backend, "new")
    assert backend.asked[1:] == [{}, {"new_code": True}]


def test_a_job_that_has_succeeded_is_asked_about_only_if_it_goes_on(zoo: Path) -> None:
    backend = Backend(zoo)
    backend.state = JobState.SUCCEEDED
    (zoo / "m.py").write_text("")
    resume(backend)
    with pytest.raises(EdlError, match="changed"):
        resume(backend, num_epochs=9)


def test_a_job_without_a_record_or_a_folder_continues(zoo: Path) -> None:
    backend = Backend(zoo)
    backend.model["code"]["folder"] = str(zoo / "gone")
    resume(backend)
    backend.model["code"] = None  # evaluate and predict take the code of the trained model
    resume(backend)
    del backend.model["code"]  # of an earlier version
    resume(backend)
    assert backend.asked == [{}, {}, {}]


@pytest.mark.parametrize(
    ("platform", "verb"), [("docker", Verb.TRAIN), ("processes", Verb.PREDICT)]
)
def test_code_in_an_image_or_a_trained_model_is_not_replaced(
    zoo: Path, platform: str, verb: Verb
) -> None:
    backend = Backend(zoo, platform, verb)
    with pytest.raises(EdlError, match="in an image or a trained model") as refused:
        resume(backend, "new")
    assert "edl resume job --code job" in refused.value.remedy
    assert backend.asked == []
    (zoo / "m.py").write_text("")
    with pytest.raises(EdlError, match=r"changed m\.py") as refused:
        resume(backend)
    assert "--code new" not in refused.value.remedy
