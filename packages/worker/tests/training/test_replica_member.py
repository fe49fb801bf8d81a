"""A member of the replica group that cannot take part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from linear_engine import Line, LinearSteps

from edl_proto.errors import EdlError
from edl_worker.collectives import shared_memory
from edl_worker.collectives.shared_memory import SharedMemory
from edl_worker.concurrency.shared_state import SharedState
from edl_worker.core.collectives import Collectives
from edl_worker.core.exchange import ParameterReply
from edl_worker.core.replicas import (
    Generation,
    Holding,
    JoinAnswer,
    OriginSpan,
    Report,
    ReportAnswer,
    VersionOrigin,
)
from edl_worker.training.replica_member import ReplicaMember
from edl_worker.training.replica_reporter import INTERVAL_S, REPORTS_PER_S, report_interval


class Master:
    """A master that has one generation."""

    incarnation = "one"
    worker_id = 0

    def __init__(self, *members: int) -> None:
        self._members = members

    def join(self, after: int, *_: object) -> JoinAnswer:
        return JoinAnswer(Generation(1, self._members, version=0) if after == 0 else None)

    def report(self, incarnation: str, report: Report) -> ReportAnswer:
        return ReportAnswer(counted=0)


def test_a_worker_that_cannot_meet_the_others_makes_no_step_alone(tmp_path: Path) -> None:
    client: Any = Master(0, 1)
    parameters: Any = None
    collectives = SharedMemory(0, tmp_path)
    member = ReplicaMember(
        LinearSteps(Line()), parameters, client, collectives, SharedState(), "mean"
    )
    refused = PermissionError("a process of another user is among them")
    with mock.patch.object(shared_memory, "SharedMemoryGroup", side_effect=refused):
        for _ in range(2):
            with pytest.raises(EdlError, match="a process of another user is among them"):
                member.join()


def test_one_that_is_alone_keeps_no_memory_for_the_next_generation() -> None:
    collectives = mock.create_autospec(Collectives, instance=True)
    parameters, client = mock.Mock(), Master(0)
    parameters.pull.return_value = ParameterReply(version=1, initialized=True)
    member = ReplicaMember(
        LinearSteps(Line()), parameters, cast(Any, client), collectives, SharedState(), "mean"
    )

    member.join()
    assert collectives.mock_calls == [mock.call.release()]
    member.forget()
    assert collectives.mock_calls == [mock.call.release()] * 2


def test_values_that_a_task_has_put_aside_are_told_to_the_next_master() -> None:
    steps, parameters = LinearSteps(Line()), mock.Mock()
    parameters.pull.return_value = ParameterReply(version=0, initialized=True)
    client: Any = Master(0)
    member = ReplicaMember(
        steps, parameters, client, mock.create_autospec(Collectives), SharedState(), "mean"
    )
    member.join()
    own = bytes(steps.pack())

    def pull(_: object, buffer: Callable[[int], memoryview], nbytes: int) -> ParameterReply:
        buffer(nbytes)[:] = bytes(nbytes - 4) + b"\x01\x01\x80\x3f"
        return ParameterReply(version=9, initialized=True, nbytes=nbytes)

    parameters.pull.side_effect = pull
    member.use_frozen("evaluation-0")
    assert bytes(steps.pack()) != own

    member.forget()
    assert bytes(steps.pack()) == own
    client.join = mock.Mock(return_value=JoinAnswer())
    member.join()
    holding = Holding(0, (OriginSpan(0, VersionOrigin("", 0)),))
    client.join.assert_called_with(0, holding, ())

    member.use_frozen("evaluation-1")  # before it knows whether its values go on
    member.forget()
    assert bytes(steps.pack()) == own


def test_members_of_a_large_group_report_less_often() -> None:
    assert report_interval(2) == report_interval(50) == INTERVAL_S
    assert 1000 / report_interval(1000) == REPORTS_PER_S
