"""The rules of the services Tasks and Parameters, as a suite for any master.

A test module derives a class from ``MasterConformance`` and gives it a fixture ``leased``. The
fake master passes the same suite as the real one, so tests of workers cannot come to depend on
a master that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import parameters_pb2, task_pb2
from edl_testing.fake_session import CALL_S, ref
from edl_testing.fake_worker import FakeWorker


@dataclass(frozen=True)
class LeasedTask:
    """A worker of an asynchronous training job that holds a task and has pushed nothing.

    Attributes:
        worker: has joined and pulled the initial values, which are zeros.
        lease: of a task with at least two minibatches of which none is in the model.
    """

    worker: FakeWorker
    lease: task_pb2.Lease

    def push(
        self, minibatch: int, *, wants_values: bool = False, **changes: object
    ) -> parameters_pb2.PushReply:
        """Push the gradient −1 for the first weight."""
        worker = self.worker
        gradient = np.zeros(worker.values.size, np.float32)
        gradient[0] = -1.0
        claim: dict[str, object] = {
            "lease": ref(self.lease),
            "minibatch": minibatch,
            "minibatches": 1,
            "records": 1,
            "base_version": worker.version,
        }
        header = parameters_pb2.PushHeader(
            worker_id=worker.id,
            incarnation=worker.incarnation,
            layout_fingerprint=worker.fingerprint,
            claim=parameters_pb2.PushClaim(**{**claim, **changes}),  # type: ignore[arg-type]  # mixed
            gradient=parameters_pb2.GradientHeader(nbytes=gradient.nbytes),
        )
        if wants_values:
            header.next.SetInParent()
        payload = gradient.view(np.uint8).data
        return worker.parameters.push(header, (payload,), worker.buffer, CALL_S)

    def pull(self, have_version: int | None = None) -> parameters_pb2.PullReply:
        """Pull values into the worker's."""
        header = parameters_pb2.PullHeader(
            worker_id=self.worker.id,
            incarnation=self.worker.incarnation,
            layout_fingerprint=self.worker.fingerprint,
            have_version=have_version,
        )
        return self.worker.parameters.pull(header, self.worker.buffer, CALL_S)

    def complete(self, minibatches: int) -> None:
        request = task_pb2.CompleteRequest(
            worker_id=self.worker.id,
            incarnation=self.worker.incarnation,
            lease=ref(self.lease),
            minibatches=minibatches,
        )
        self.worker.call(self.worker.tasks.Complete, request)

    def give_back(self, *refs: task_pb2.LeaseRef) -> None:
        """Return leases without leaving the job."""
        request = task_pb2.ReturnRequest(
            worker_id=self.worker.id,
            incarnation=self.worker.incarnation,
            leases=refs,
            reason="test",
        )
        self.worker.call(self.worker.tasks.Return, request)
        for one in refs:
            self.worker.held.pop(one.token, None)


class MasterConformance:
    """The rules that every master keeps."""

    @pytest.fixture
    def leased(self) -> Iterator[LeasedTask]:
        """Give a task that a worker holds; each master overrides this."""
        raise NotImplementedError

    def test_the_next_minibatch_is_applied(self, leased: LeasedTask) -> None:
        reply = leased.push(0)
        assert reply.outcome == parameters_pb2.APPLIED
        assert reply.version == (leased.worker.version or 0) + 1

    def test_a_repeated_push_changes_nothing(self, leased: LeasedTask) -> None:
        first = leased.push(0)
        again = leased.push(0)
        assert again.outcome == parameters_pb2.ALREADY_APPLIED
        assert again.version == first.version
        leased.pull()
        assert leased.worker.values[0] == 1.0

    def test_a_push_beyond_the_next_minibatch_is_out_of_order(self, leased: LeasedTask) -> None:
        assert leased.push(1).outcome == parameters_pb2.OUT_OF_ORDER

    def test_a_push_under_another_token_is_refused(self, leased: LeasedTask) -> None:
        other = ref(leased.lease)
        other.token += 1000
        assert leased.push(0, lease=other).outcome == parameters_pb2.REFUSED

    def test_a_pull_brings_values_only_if_they_are_newer(self, leased: LeasedTask) -> None:
        reply = leased.pull(leased.worker.version)
        assert (reply.initialized, reply.nbytes) == (True, 0)
        pushed = leased.push(0)
        reply = leased.pull(leased.worker.version)
        assert (reply.version, reply.nbytes) == (pushed.version, leased.worker.values.nbytes)

    def test_a_push_that_asks_for_values_gets_the_new_ones(self, leased: LeasedTask) -> None:
        reply = leased.push(0, wants_values=True)
        assert reply.nbytes == leased.worker.values.nbytes
        assert leased.worker.values[0] == 1.0

    def test_only_the_first_initial_values_are_accepted(self, leased: LeasedTask) -> None:
        assert not leased.worker.initialize().accepted

    def test_a_call_for_another_incarnation_is_refused(self, leased: LeasedTask) -> None:
        incarnation = leased.worker.incarnation
        leased.worker.incarnation = "another"
        try:
            with pytest.raises(EdlError) as caught:
                leased.complete(0)
        finally:
            leased.worker.incarnation = incarnation
        assert caught.value.code == ErrorCode.STALE_INCARNATION

    def test_a_task_is_complete_only_with_all_its_minibatches(self, leased: LeasedTask) -> None:
        with pytest.raises(EdlError):
            leased.complete(2)
        assert leased.push(0).outcome in (parameters_pb2.APPLIED, parameters_pb2.REFUSED)

    def test_a_returned_task_keeps_its_count(self, leased: LeasedTask) -> None:
        leased.push(0)
        leased.give_back(ref(leased.lease))
        assert leased.push(1).outcome == parameters_pb2.REFUSED
        again = leased.worker.ask().lease
        try:
            assert again.task == leased.lease.task
            assert again.token > leased.lease.token
            assert again.skip_minibatches == 1
        finally:
            leased.give_back(ref(again))
