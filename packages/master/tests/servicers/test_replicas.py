"""What the calls of workers that train in step make of what a worker says."""

from __future__ import annotations

from typing import Any
from unittest import mock

from edl_master.core.identifiers import Version
from edl_master.core.replica_events import StepsCounted, StepsReported
from edl_master.servicers.replicas import ReplicasServicer
from edl_proto.v1 import replicas_pb2 as pb


def test_a_cause_cannot_write_into_a_log_or_an_event() -> None:
    controller = mock.Mock()
    controller.handle.return_value = StepsCounted(Version(0), ended=True)
    unused: Any = mock.MagicMock()
    servicer = ReplicasServicer(controller, unused, unused, "one")
    cause = "refused\n\x1b[2J" + "x" * 10_000

    servicer.Report(pb.ReportRequest(incarnation="one", unreachable=1, cause=cause), unused)

    (reported,) = controller.handle.call_args.args
    assert isinstance(reported, StepsReported)
    assert reported.cause.startswith("refused\\n\\x1b[2Jxx")
    assert len(reported.cause) < 310
