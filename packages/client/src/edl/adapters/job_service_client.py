"""The link to a job's master."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

import grpc

from edl import codec
from edl.core.job_status import JobEvent
from edl.core.options.value_types import WorkerRange
from edl.core.timeline import TimelineSpan
from edl.ports.job_backend import LearningRate, MasterUnreachable, Setting
from edl_proto.errors import EdlError
from edl_proto.identity.credentials import Peer
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc

_TIMELINE_S = 120.0
"""Deadline for reading the timeline: up to 64 MiB, perhaps through a forwarded port."""

CALL_S = 5.0
"""Deadline of a call. A master answers at once; a busy machine may take a second or two."""

T = TypeVar("T")


class JobServiceClient:
    """A client of one master. Also a context manager.

    Args:
        address: of the master.
        peer: what has to be there; None: the job is not secured.

    Every method raises MasterUnreachable if there was no answer, and EdlError if the master
    answered with one.
    """

    def __init__(self, address: str, peer: Peer | None = None) -> None:
        self.address = address
        self._channel = channels.connect(address, peer)
        self._job = job_pb2_grpc.JobStub(self._channel)

    def __enter__(self) -> JobServiceClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def status_message(self) -> job_pb2.JobStatus:
        return _call(lambda: self._job.GetStatus(job_pb2.GetStatusRequest(), timeout=CALL_S))

    def events(self, after: int) -> list[JobEvent]:
        """Return the events so far with a number above ``after``."""
        request = job_pb2.WatchEventsRequest(after=after, follow=False)
        return _call(
            lambda: [
                codec.decode_event(event)
                for event in self._job.WatchEvents(request, timeout=CALL_S)
            ]
        )

    def timeline(self) -> list[TimelineSpan]:
        """Return what the job's workers did when, including what is in progress."""
        request = job_pb2.ReadTimelineRequest()
        return codec.decode_timeline(
            _call(
                lambda: [
                    line
                    for chunk in self._job.ReadTimeline(request, timeout=_TIMELINE_S)
                    for line in chunk.lines.splitlines()
                ]
            )
        )

    def change(self, setting: Setting) -> Setting:
        if isinstance(setting, LearningRate):
            rate = job_pb2.SetLearningRateRequest(learning_rate=setting.value)
            _call(lambda: self._job.SetLearningRate(rate, timeout=CALL_S))
            return setting
        return self._scale(setting)

    def _scale(self, workers: WorkerRange) -> WorkerRange:
        request = job_pb2.ScaleRequest(
            workers=job_pb2.WorkersSpec(min=workers.min, max=workers.max)
        )
        reply = _call(lambda: self._job.Scale(request, timeout=CALL_S))
        return WorkerRange(reply.workers.min, reply.workers.max)

    def stop(self, reason: str) -> None:
        _call(lambda: self._job.Stop(job_pb2.StopRequest(reason=reason), timeout=CALL_S))

    def acknowledge(self) -> None:
        """Tell the master that the final status has been read."""
        _call(lambda: self._job.Acknowledge(job_pb2.AcknowledgeRequest(), timeout=CALL_S))


def _call(call: Callable[[], T]) -> T:
    try:
        return call()
    except grpc.RpcError as error:
        raise _translate(error) from error


def _translate(error: grpc.RpcError) -> Exception:
    known = EdlError.from_rpc(error)
    if known is not None:
        return known
    code = error.code().name if isinstance(error, grpc.Call) else type(error).__name__
    details = error.details() if isinstance(error, grpc.Call) else str(error)
    return MasterUnreachable(f"{code}: {details}")
