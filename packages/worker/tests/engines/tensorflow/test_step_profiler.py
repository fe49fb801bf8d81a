"""A worker profiles the steps that the job names, and nothing else."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest
from conftest import Master, Start, two_tasks
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_worker.engines.tensorflow.step_profiler import StepProfiler


def steps_of(space: xplane_pb2.XSpace) -> set[int]:
    """Return the numbers of the steps that TensorBoard's plugin finds in a profile."""
    found = set()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                for stat in event.stats:
                    kind = plane.stat_metadata[stat.metadata_id].name
                    if name == "train" and kind == "step_num":
                        found.add(stat.int64_value or stat.uint64_value)
    return found


def test_the_named_steps_are_profiled_across_tasks(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.training.profile.MergeFrom(job_pb2.StepRange(first=4, last=8))  # tasks of 6 and 7
    master = start_master(job, [two_tasks(points)])
    assert start_worker(master).wait() == 0
    assert [one.last for one in master.received.profiles] == [True]
    packed = b"".join(one.content for one in master.received.profiles)
    space = xplane_pb2.XSpace.FromString(gzip.decompress(packed))
    assert steps_of(space) == {4, 5, 6, 7, 8}


def test_without_the_option_nothing_is_profiled(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    assert start_worker(master).wait() == 0
    assert master.received.profiles == []


def test_a_profile_that_is_refused_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(packed: bytes) -> None:
        raise EdlError(ErrorCode.DISK_FULL, "the disk is full")

    profiler = StepProfiler(1, 2, refuse)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            profiler.begin_step()
    assert [record.message for record in caplog.records if "disk is full" in record.message]


def test_the_profiler_is_free_again_afterwards() -> None:
    sent: list[bytes] = []
    for _ in range(2):
        profiler = StepProfiler(2, 2, sent.append)
        for _ in range(4):
            profiler.begin_step()
    assert len(sent) == 2
