"""The rules of the services Coordinator and Shard, as a suite for any master with servers.

A test module derives a class from ``ParameterServerConformance`` and gives it a fixture
``served``. Fakes and real servers pass the same suite, so tests of workers cannot come to depend
on servers that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport.parameters import CoordinatorStub, ShardStub
from edl_proto.transport.row_placement import server_of
from edl_proto.v1 import job_pb2, task_pb2
from edl_proto.v1 import parameters_pb2 as pb

CALL_S = 100.0

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ServedParameters:
    """A coordinator and its servers in asynchronous mode, with SGD of rate 1 and no values yet.

    Attributes:
        parts: float32 numbers of each server: of trainable variables, and of state.
        dim: numbers of a row of the only table, whose new rows are zeros.
        incarnation, fingerprint: that calls have to name.
        lease: may push, of a task without any minibatch in the model.
        freeze: keeps the present values under a name.
    """

    coordinator: CoordinatorStub
    servers: Sequence[ShardStub]
    parts: Sequence[tuple[int, int]]
    dim: int
    incarnation: str
    fingerprint: str
    lease: task_pb2.LeaseRef
    freeze: Callable[[str], object]

    def caller(self, worker: int = 1) -> dict[str, Any]:
        return {
            "worker_id": worker,
            "incarnation": self.incarnation,
            "layout_fingerprint": self.fingerprint,
        }

    def initialize(self, value: float = 1.0, worker: int = 1) -> pb.CommitInitialValuesReply:
        """Propose the same number for everything, and have it committed."""
        for stub, part in zip(self.servers, self.parts, strict=True):
            values = np.full(sum(part), value, np.float32)
            header = pb.ProposeHeader(**self.caller(worker), nbytes=values.nbytes)
            stub.propose(header, values.data, CALL_S)
        request = pb.CommitInitialValuesRequest(**self.caller(worker))
        return self.coordinator.commit_initial_values(request, CALL_S)

    def prepare(
        self, number: int, minibatch: int = 0, value: float = 0.5, log_index: int = 0
    ) -> pb.PrepareReply:
        """Send one server a gradient, and a difference of state, that are the same everywhere."""
        gradient, state = (np.full(size, value, np.float32) for size in self.parts[number])
        header = pb.PrepareHeader(
            **self.caller(),
            lease=self.lease,
            minibatch=minibatch,
            gradient=pb.GradientHeader(nbytes=gradient.nbytes, state_nbytes=state.nbytes),
            log_index=log_index,
        )
        return self.servers[number].prepare(header, (gradient.data, state.data), CALL_S)

    def commit(self, minibatch: int = 0, *, waits: bool = False, **changes: Any) -> pb.CommitReply:
        claim = {"lease": self.lease, "minibatch": minibatch, "minibatches": 1, "records": 1}
        request = pb.CommitRequest(**self.caller(), claim=pb.PushClaim(**{**claim, **changes}))
        if waits:
            request.permit_wait_s = 0.0
        return self.coordinator.commit(request, CALL_S)

    def push(self, minibatch: int = 0, value: float = 0.5) -> pb.CommitReply:
        for number in range(len(self.servers)):
            assert self.prepare(number, minibatch, value).finite
        return self.commit(minibatch)

    def permit(self, **fields: Any) -> pb.PermitReply:
        return self.coordinator.permit(pb.PermitRequest(**self.caller(), **fields), CALL_S)

    def read(
        self, number: int, ids: Sequence[int] = (), **fields: Any
    ) -> tuple[pb.ReadReply, bytes, bytes]:
        """Return a reply, with the bytes of values and of rows."""
        values, rows = bytearray(), bytearray()

        def buffer(into: bytearray) -> Callable[[int], bytearray]:
            def give(nbytes: int) -> bytearray:
                into.extend(bytes(nbytes))
                return into

            return give

        counts = [pb.TableRows(table=0, count=len(ids))] if ids else []
        header = pb.ReadHeader(**self.caller(), rows=counts, **fields)
        wanted = np.array(ids, np.int64)
        reply = self.servers[number].read(
            header, buffer(values), CALL_S, memoryview(wanted.tobytes()), buffer(rows)
        )
        return reply, bytes(values), bytes(rows)

    def values(self, number: int, log_index: int) -> tuple[int, list[float], list[float]]:
        """Return a server's version, its trainable numbers and its state."""
        reply, values, _ = self.read(number, log_index=log_index)
        numbers = np.frombuffer(values, np.float32).tolist()
        trainable, _ = self.parts[number]
        return reply.version, numbers[:trainable], numbers[trainable:]

    def ids_of(self, number: int, count: int = 3) -> list[int]:
        """Return the ids whose rows are at a server."""
        every = np.arange(100)
        found: list[int] = every[server_of(every, len(self.servers)) == number][:count].tolist()
        return found

    def put_rows(self, number: int, ids: Sequence[int], rows: Array) -> pb.PutRowsReply:
        header = pb.PutRowsHeader(**self.caller(), rows=pb.TableRows(table=0, count=len(ids)))
        payloads = memoryview(np.array(ids, np.int64).tobytes()), memoryview(rows.tobytes())
        return self.servers[number].put_rows(header, payloads, CALL_S)


@contextmanager
def raises_error(code: ErrorCode.ValueType) -> Iterator[None]:
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error = EdlError.from_rpc(caught.value)
    assert error is not None
    assert error.code == code


class ParameterServerConformance:
    """The rules that every coordinator and its servers keep."""

    @pytest.fixture
    def served(self) -> Iterator[ServedParameters]:
        """Give a coordinator with its servers; each kind overrides this."""
        raise NotImplementedError

    # --- initial values --------------------------------------------------------------------

    def test_there_is_nothing_before_the_initial_values(self, served: ServedParameters) -> None:
        permit = served.permit()
        assert (permit.initialized, permit.permit_granted) == (False, False)
        reply, values, rows = served.read(0, served.ids_of(0))
        assert (reply.version, reply.nbytes, reply.rows_nbytes) == (0, 0, 0)
        assert values == rows == b""

    def test_the_values_of_the_first_worker_are_used(self, served: ServedParameters) -> None:
        first = served.initialize(1.0)
        assert first.accepted
        second = served.initialize(2.0, worker=2)
        assert not second.accepted
        assert second.log_index == first.log_index
        permit = served.permit()
        assert permit.initialized
        for number, (trainable, state) in enumerate(served.parts):
            expected = permit.version, [1.0] * trainable, [1.0] * state
            assert served.values(number, first.log_index) == expected

    def test_values_of_another_size_are_refused(self, served: ServedParameters) -> None:
        values = np.zeros(sum(served.parts[0]) + 1, np.float32)
        header = pb.ProposeHeader(**served.caller(), nbytes=values.nbytes)
        with raises_error(ErrorCode.SHAPE_MISMATCH):
            served.servers[0].propose(header, values.data, CALL_S)

    # --- pushes ----------------------------------------------------------------------------

    def test_a_committed_push_is_applied_by_every_server(self, served: ServedParameters) -> None:
        before, version = served.initialize(1.0), served.permit().version
        pushed = served.push()
        assert pushed.outcome == pb.APPLIED
        assert pushed.version == version + 1
        assert pushed.log_index == before.log_index + 1
        for number, (trainable, state) in enumerate(served.parts):
            expected = pushed.version, [0.5] * trainable, [1.5] * state
            assert served.values(number, pushed.log_index) == expected

    def test_a_prepared_push_changes_nothing(self, served: ServedParameters) -> None:
        before = served.initialize(1.0)
        trainable, state = served.parts[0]
        assert served.prepare(0).finite
        expected = served.permit().version, [1.0] * trainable, [1.0] * state
        assert served.values(0, before.log_index) == expected

    def test_a_push_that_is_prepared_again_counts_once(self, served: ServedParameters) -> None:
        served.initialize(1.0)
        served.prepare(0, value=8.0)
        pushed = served.push(value=0.5)
        again = served.push(value=0.5)
        assert (pushed.outcome, again.outcome) == (pb.APPLIED, pb.ALREADY_APPLIED)
        assert (again.version, again.log_index) == (pushed.version, pushed.log_index)
        trainable, state = served.parts[0]
        expected = pushed.version, [0.5] * trainable, [1.5] * state
        assert served.values(0, again.log_index) == expected

    def test_one_push_after_the_other(self, served: ServedParameters) -> None:
        served.initialize(1.0)
        first = served.push(0)
        for number in range(len(served.servers)):
            served.prepare(number, 1, log_index=first.log_index)
        second = served.commit(1, base_version=first.version)
        assert second.outcome == pb.APPLIED
        trainable, state = served.parts[0]
        expected = second.version, [0.0] * trainable, [2.0] * state
        assert served.values(0, second.log_index) == expected

    def test_a_push_beyond_the_next_minibatch_is_out_of_order(
        self, served: ServedParameters
    ) -> None:
        before, version = served.initialize(), served.permit().version
        reply = served.commit(1)
        assert reply.outcome == pb.OUT_OF_ORDER
        assert (reply.version, reply.log_index) == (version, before.log_index)

    def test_a_push_under_another_token_is_refused(self, served: ServedParameters) -> None:
        served.initialize()
        other = task_pb2.LeaseRef()
        other.CopyFrom(served.lease)
        other.token += 1000
        assert served.commit(lease=other).outcome == pb.REFUSED

    def test_a_gradient_that_is_not_finite_is_found(self, served: ServedParameters) -> None:
        served.initialize()
        assert not served.prepare(0, value=np.inf).finite
        assert not served.prepare(0, value=np.nan).finite

    def test_a_gradient_of_another_size_is_refused(self, served: ServedParameters) -> None:
        served.initialize()
        gradient = np.zeros(served.parts[0][0] + 1, np.float32)
        header = pb.PrepareHeader(
            **served.caller(),
            lease=served.lease,
            gradient=pb.GradientHeader(nbytes=gradient.nbytes),
        )
        with raises_error(ErrorCode.SHAPE_MISMATCH):
            served.servers[0].prepare(header, (gradient.data,), CALL_S)

    # --- permits ---------------------------------------------------------------------------

    def test_a_worker_that_asks_for_a_step_permit_gets_one(self, served: ServedParameters) -> None:
        served.initialize()
        assert not served.permit().permit_granted
        assert served.permit(permit_for=served.lease).permit_granted
        served.prepare(0)
        served.prepare(1)
        assert not served.commit(0).permit_granted
        assert served.commit(0, waits=True).permit_granted
        assert not served.commit(5, waits=True).permit_granted, "the task does not go on"

    # --- reading ---------------------------------------------------------------------------

    def test_values_come_in_the_precision_that_was_asked_for(
        self, served: ServedParameters
    ) -> None:
        index = served.initialize(1.5).log_index
        trainable, state = served.parts[0]
        ids = served.ids_of(0)
        for precision in (job_pb2.FLOAT16, job_pb2.BFLOAT16):
            reply, values, rows = served.read(0, ids, precision=precision, log_index=index)
            assert reply.precision == precision
            assert len(values) == reply.nbytes == 2 * trainable + 4 * state
            assert len(rows) == reply.rows_nbytes == 2 * served.dim * len(ids)
            assert values[2 * trainable :] == np.full(state, 1.5, np.float32).tobytes()
        reply, values, _ = served.read(0, precision=job_pb2.FLOAT16, log_index=index)
        assert values[: 2 * trainable] == np.full(trainable, 1.5, np.float16).tobytes()

    def test_values_without_a_place_in_16_bits_come_whole(self, served: ServedParameters) -> None:
        index = served.initialize(1e6).log_index
        reply, values, _ = served.read(0, precision=job_pb2.FLOAT16, log_index=index)
        assert reply.precision == job_pb2.FLOAT32
        assert values == np.full(sum(served.parts[0]), 1e6, np.float32).tobytes()

    def test_rows_come_in_the_order_of_their_ids(self, served: ServedParameters) -> None:
        first, second, third = served.ids_of(0)
        rows = np.arange(2 * served.dim, dtype=np.float32).reshape(2, -1)
        assert served.put_rows(0, [first, second], rows).accepted
        index = served.initialize().log_index
        asked = [second, third, first]
        reply, values, found = served.read(0, asked, only_rows=True, log_index=index)
        assert (reply.nbytes, values) == (0, b"")
        expected = np.stack([rows[1], np.zeros(served.dim, np.float32), rows[0]])
        assert found == expected.tobytes()
        assert not served.put_rows(0, [first], rows[:1]).accepted, "there are values"

    def test_a_frozen_version_stays_as_it_was(self, served: ServedParameters) -> None:
        mine = served.ids_of(1, 3)
        rows = np.arange(3 * served.dim, dtype=np.float32).reshape(3, -1)
        served.put_rows(1, mine, rows)
        before, version = served.initialize(1.0), served.permit().version
        served.freeze("then")
        pushed = served.push()
        assert pushed.log_index == before.log_index + 2, "to freeze is a command, too"
        reply, values, found = served.read(1, mine, frozen="then", log_index=pushed.log_index)
        assert reply.version == version
        assert values == np.full(sum(served.parts[1]), 1.0, np.float32).tobytes()
        assert found == rows.tobytes()
        assert served.values(1, pushed.log_index)[1] == [0.5] * served.parts[1][0]

    def test_all_rows_of_a_frozen_version_are_scanned_once(self, served: ServedParameters) -> None:
        mine = served.ids_of(1, 3)
        rows = np.arange(3 * served.dim, dtype=np.float32).reshape(3, -1)
        served.put_rows(1, mine, rows)
        served.initialize()
        served.freeze("then")
        index = served.permit().log_index
        found: dict[int, bytes] = {}
        cursor, more = 0, True
        while more:
            header = pb.ScanRowsHeader(
                **served.caller(), frozen="then", cursor=cursor, most=2, log_index=index
            )
            reply, ids, page = served.servers[1].scan_rows(header, served.dim, CALL_S)
            numbers = np.frombuffer(page, np.float32).reshape(-1, served.dim)
            for one, row in zip(np.frombuffer(ids, np.int64), numbers, strict=True):
                assert int(one) not in found
                found[int(one)] = row.tobytes()
            cursor, more = reply.cursor, reply.more
        assert found == {one: row.tobytes() for one, row in zip(mine, rows, strict=True)}

    def test_what_was_never_frozen_is_not_found(self, served: ServedParameters) -> None:
        index = served.initialize().log_index
        with raises_error(ErrorCode.VERSION_NOT_FOUND):
            served.read(0, frozen="never", log_index=index)

    # --- callers ---------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("changed", "code"),
        [
            ({"incarnation": "another"}, ErrorCode.STALE_INCARNATION),
            ({"layout_fingerprint": "another"}, ErrorCode.SHAPE_MISMATCH),
        ],
    )
    def test_calls_that_are_meant_for_others_are_refused(
        self, served: ServedParameters, changed: dict[str, str], code: ErrorCode.ValueType
    ) -> None:
        served.initialize()
        caller = {**served.caller(), **changed}
        with raises_error(code):
            served.coordinator.permit(pb.PermitRequest(**caller), CALL_S)
        with raises_error(code):
            claim = pb.PushClaim(lease=served.lease, records=1)
            served.coordinator.commit(pb.CommitRequest(**caller, claim=claim), CALL_S)
        with raises_error(code):
            served.servers[0].read(pb.ReadHeader(**caller), bytearray, CALL_S)
