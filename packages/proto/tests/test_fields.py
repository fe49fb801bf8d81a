"""Messages and values of the same names: nothing gets lost on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from edl_proto import fields
from edl_proto.v1 import task_pb2


@dataclass(frozen=True, slots=True)
class Call:
    state: bytes = b""
    logs: Mapping[str, float] = field(default_factory=dict)
    learning_rate: float | None = None
    train_end: bool = False
    epoch_begin: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    worker_id: int
    instance: str


@dataclass(frozen=True, slots=True)
class Leases:
    worker_id: int
    instance: str
    reason: str
    leases: tuple[task_pb2.LeaseRef, ...] = ()


@pytest.mark.parametrize("call", [Call(), Call(b"s", {"loss": 0.5}, 0.0, True)])
def test_a_value_comes_back_as_it_was(call: Call) -> None:
    assert fields.decode(Call, fields.encode(task_pb2.CallbackCall, call)) == call


def test_what_is_given_comes_first_and_then_the_sources_in_their_order() -> None:
    worker, other = Worker(3, "host:1"), Leases(4, "host:2", "terminated")
    message = fields.encode(task_pb2.ReturnRequest, worker, other, incarnation="a", leaving=True)
    assert (message.worker_id, message.instance, message.reason) == (3, "host:1", "terminated")
    found = fields.decode(Leases, message, reason="scaled-down")
    assert found == Leases(3, "host:1", "scaled-down")


def test_a_field_that_is_missing_is_an_error() -> None:
    with pytest.raises(AttributeError, match="incarnation"):
        fields.encode(task_pb2.LeaseRequest, Worker(3, "host:1"), wait_s=1.0)
    with pytest.raises(AttributeError, match="reason"):
        fields.decode(Leases, task_pb2.RegisterRequest())
