"""A small training job with one worker that has joined."""

from __future__ import annotations

from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, Version, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.settings import JobType
from edl_master.reporting.status_codec import StatusContext

SETTINGS = job_settings(
    JobType.TRAIN, records_per_task=4, minibatch_size=2, num_epochs=2, shuffle=False, export=False
)
DATA = (10, 6)
WORKER, INSTANCE = WorkerId(0), InstanceId("0a")
CONTEXT = StatusContext("job", "", "", "", "", "incarnation", {}, {})


def join_worker(job: JobStateMachine, now: float = 0.0) -> JobStateMachine:
    """The job, begun, with worker 0 ready."""
    job.handle(ev.Tick(), now)
    job.handle(ev.WorkerRegistered(WORKER, INSTANCE, "host", 1), now)
    job.handle(ev.WorkerReady(WORKER, INSTANCE), now)
    return job


def lease(job: JobStateMachine, now: float = 0.0) -> fx.LeaseGranted:
    (granted,) = job.handle(ev.LeaseRequested(WORKER, INSTANCE), now)
    assert isinstance(granted, fx.LeaseGranted)
    return granted


def minibatch_applied(granted: fx.LeaseGranted, version: int, loss: float) -> ev.MinibatchApplied:
    held = ev.HeldLease(granted.task, granted.token)
    return ev.MinibatchApplied(WORKER, held, 2, Version(version), loss, 3)
