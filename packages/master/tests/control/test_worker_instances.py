"""The platform that a job gets, and the GPUs of its workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.jobs import complete_spec

from edl_master.adapters.processes import LocalProcesses
from edl_master.config import job_config
from edl_master.control.worker_instances import platform_for_job
from edl_master.core.events import InstanceExited
from edl_master.core.identifiers import WorkerId
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import gpus

TWO = ("GPU-a", "GPU-b")


class Jobs:
    """Makes platforms of jobs on a machine with some GPUs."""

    def __init__(self, directory: Path, opened: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._opened = opened
        self._patch = patch

    def platform(
        self, has: tuple[str, ...], chosen: str, workers: int, platform: str = "processes"
    ) -> LocalProcesses:
        self._patch.setattr(gpus, "find_gpus", lambda environ: has)
        spec = complete_spec(
            gpus=chosen, platform=platform, workers=job_pb2.WorkersSpec(min=1, max=workers)
        )
        python = self._directory / "python"
        python.write_text(
            '#!/bin/sh\necho "hashes with $PYTHONHASHSEED, sees ${CUDA_VISIBLE_DEVICES-all}"\n'
        )
        python.chmod(0o755)
        environ = {"PATH": "/bin", "EDL_PYTHON": str(python)}
        config = job_config.read(spec, self._directory, environ)
        made = platform_for_job(config, lambda: "127.0.0.1:1")
        assert isinstance(made, LocalProcesses)
        self._opened.callback(made.close, 0)
        return made

    def seen_gpus(self, platform: LocalProcesses, workers: int) -> list[str]:
        """Start workers; return what each says of the GPUs that it sees."""
        ended: set[int] = set()
        for worker in range(workers):
            platform.start(WorkerId(worker), 0)
        while len(ended) < workers:
            ended |= {e.worker for e in platform.observe(200) if isinstance(e, InstanceExited)}
        logs = (self._directory / f"logs/worker-{worker}.log" for worker in range(workers))
        return [log.read_text().rpartition("sees ")[2].strip() for log in logs]

    def refuse(self, *args: Any) -> EdlError:
        """The error for what ``platform`` was given."""
        with pytest.raises(EdlError) as refused:
            self.platform(*args)
        assert refused.value.code == ErrorCode.USAGE
        return refused.value


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    with ExitStack() as opened:
        yield Jobs(tmp_path, opened, monkeypatch)


def test_each_worker_sees_a_gpu_of_its_own(jobs: Jobs) -> None:
    assert jobs.seen_gpus(jobs.platform(TWO, "each", 2), 2) == ["GPU-a", "GPU-b"]


def test_without_gpus_workers_see_what_is_there(jobs: Jobs) -> None:
    assert jobs.seen_gpus(jobs.platform((), "each", 3), 3) == ["all", "all", "all"]


def test_sets_have_the_same_order_in_all_workers(jobs: Jobs, tmp_path: Path) -> None:
    jobs.seen_gpus(jobs.platform((), "each", 2), 2)
    for worker in range(2):
        assert "hashes with 0," in (tmp_path / f"logs/worker-{worker}.log").read_text()


def test_more_workers_than_gpus_are_refused_unless_they_share(jobs: Jobs) -> None:
    error = jobs.refuse(TWO, "each", 3)
    assert "3 workers for 2 GPUs" in error.what
    assert error.where == "--num-workers"
    assert "--gpus shared" in error.remedy
    assert "--gpus none" in error.remedy
    shared = jobs.platform(TWO, "shared", 3)
    assert jobs.seen_gpus(shared, 3) == ["GPU-a", "GPU-b", "GPU-a"]


def test_a_job_that_wants_no_gpus_hides_them_from_its_workers(jobs: Jobs) -> None:
    assert jobs.seen_gpus(jobs.platform(TWO, "none", 3), 3) == ["-1", "-1", "-1"]


def test_a_job_of_an_earlier_version_keeps_what_it_had(jobs: Jobs) -> None:
    assert jobs.seen_gpus(jobs.platform(TWO, "", 3), 3) == ["all", "all", "all"]


@pytest.mark.parametrize("chosen", ["each", "shared"])
def test_a_container_that_was_to_have_gpus_and_has_none(jobs: Jobs, chosen: str) -> None:
    error = jobs.refuse((), chosen, 1, "docker")
    assert "container has no GPU" in error.what
    assert "toolkit" in error.remedy
    assert jobs.seen_gpus(jobs.platform((), "none", 1, "docker"), 1) == ["-1"]
    assert jobs.seen_gpus(jobs.platform(TWO, chosen, 2, "docker"), 2) == ["GPU-a", "GPU-b"]


def test_a_word_that_says_nothing_about_gpus(jobs: Jobs) -> None:
    assert "each, shared or none, not 'all'" in jobs.refuse(TWO, "all", 1).what
