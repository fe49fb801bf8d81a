"""The model of a running job is released whenever it has trained more, and once at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edl.adapters.release_folder import ReleasesOnDisk, StoredReleases, open_releases
from edl.core.job_status import JobState, JobStatus
from edl.core.options import Verb
from edl.core.releases import find_outdated
from edl.use_cases import model_release
from edl.use_cases.model_release import ModelReleaser
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.releases import read_numbers
from edl_runtime.model.trained_model import TRAINED_MODEL
from recordio.storage.stores import filesystem


class Job:
    """A job, which trains as its script says, and its backend.

    Args:
        versions: saved at each look; after the last one, the job has ended as ``state`` says.
    """

    def __init__(self, place: Path, *versions: int | None, platform: str = "processes") -> None:
        self.place = place
        self.platform = platform
        self.state = JobState.SUCCEEDED
        self._script: Iterator[int | None] = iter(versions)
        self._version: int | None = None
        self.slept = 0.0

    def find(self, name: str) -> Job:
        return self

    def sleep(self, seconds: float) -> None:
        self.slept += seconds

    def status(self, name: str, **_: Any) -> Any:
        self._version = version = next(self._script, -1)
        state = self.state if version == -1 else JobState.RUNNING
        output = str(write_model(self.place / "output", b"trained")) if version == -1 else ""
        status = JobStatus(
            name, Verb.TRAIN, state, output=output, version=99, saved_version=version
        )
        return SimpleNamespace(status=status, is_over=state.is_over)

    def export(self, catalog: Any, name: str, place: str, display: Any) -> JobStatus:
        write_model(Path(place))
        return JobStatus(name, Verb.TRAIN, JobState.SUCCEEDED, version=self._version or 0)


def write_model(place: Path, content: bytes = b"so far") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / TRAINED_MODEL).write_bytes(content)
    return place


def release(job: Job, monkeypatch: pytest.MonkeyPatch, keep: int = 0) -> list[tuple[Any, ...]]:
    monkeypatch.setattr(model_release, "export_model", job.export)
    catalog: Any = job
    display: Any = SimpleNamespace()
    folder = ReleasesOnDisk(str(job.place / "releases"))
    releaser = ModelReleaser(
        catalog, "clicks", folder, display, every_s=3, keep=keep, sleep=job.sleep
    )
    return [(it.number, it.version, it.removed) for it in releaser.run()]


def test_a_release_for_each_time_in_which_the_job_has_trained_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [None, 0, 10, 20, 20, 20, 30, 30, 30, 30, 30, 40]
    found = release(Job(tmp_path, *looks), monkeypatch)
    assert found == [(1, 10, ()), (2, 30, ()), (3, 40, ()), (4, 99, ())]


def test_old_releases_are_removed_and_numbers_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = tmp_path / "releases"
    for name in ("7", "8", "notes", "9.tmp"):
        (releases / name).mkdir(parents=True)
    found = release(Job(tmp_path, 10), monkeypatch, keep=2)
    assert found == [(9, 10, (7,)), (10, 99, (8,))]
    assert sorted(path.name for path in releases.iterdir()) == ["10", "9", "9.tmp", "notes"]


def test_the_last_release_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path)
    assert release(job, monkeypatch) == [(1, 99, ())]
    assert release(job, monkeypatch) == []


def test_a_job_that_ends_before_its_export_has_its_last_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, over = Job(tmp_path, 10), EdlError(ErrorCode.USAGE, "it has succeeded")

    def refuse(*_: Any) -> JobStatus:
        raise over

    monkeypatch.setattr(job, "export", refuse)
    assert release(job, monkeypatch) == [(1, 99, ())]
    running = Job(tmp_path, 10, 20)
    monkeypatch.setattr(running, "export", refuse)
    with pytest.raises(EdlError, match="it has succeeded"):
        release(running, monkeypatch)


def test_a_job_that_failed_has_no_last_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, 10)
    job.state = JobState.FAILED
    assert release(job, monkeypatch) == [(1, 10, ())]


def test_pods_do_not_write_into_a_folder_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EdlError, match="a folder of this machine"):
        release(Job(tmp_path, 10, platform="kubernetes"), monkeypatch)


@pytest.mark.parametrize("place", ["{tmp}/releases", "memory://releases"])
def test_a_release_appears_whole(place: str, tmp_path: Path) -> None:
    folder = open_releases(place.format(tmp=tmp_path))
    assert isinstance(folder, StoredReleases) is place.startswith("memory")
    assert folder.list() == []
    model = write_model(tmp_path / "model")
    (model / "saved_model").mkdir()
    (model / "saved_model" / "graph.pb").write_bytes(b"graph")
    for number in (1, 2, 10):
        folder.add(number, str(model))
    folder.remove(2)
    assert folder.list() == [1, 10]
    system, path = filesystem(folder.place_of(10))
    assert system.cat_file(f"{path}/saved_model/graph.pb") == b"graph"
    assert system.exists(f"{path}/{TRAINED_MODEL}")
    folder.add(11, folder.place_of(10))
    assert folder.list() == [1, 10, 11]


def test_numbers() -> None:
    assert read_numbers(["10", "9", "a", "-1", ".3", "1.0", ""]) == [9, 10]
    assert find_outdated([9, 10, 11], 0) == []
    assert find_outdated([9, 10, 11], 2) == [9]


def test_a_release_that_is_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    folder, golden = open_releases(str(tmp_path / "releases")), write_model(tmp_path / "golden")
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "4").symlink_to(golden)
    assert folder.list() == [4]
    folder.remove(4)
    assert not list((tmp_path / "releases").iterdir())
    assert (golden / TRAINED_MODEL).exists()
