"""Many parameter servers that look like one: what each is sent, and what is put together."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parameter_server_job import (
    BORDERS,
    CALLER,
    DIM,
    ROWS,
    WAIT_S,
    Job,
    as_bytes,
    floats,
    ids_of,
    pull,
    push,
    push_half,
)

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Identity
from edl_proto.transport import raw_calls
from edl_proto.transport.direct_connection import FrameError
from edl_proto.transport.listener import Listener
from edl_proto.transport.row_placement import server_of
from edl_proto.v1 import job_pb2
from edl_proto.v1 import parameters_pb2 as pb
from edl_worker.core.exchange import (
    ScanRequest,
    TableRows,
)
from edl_worker.core.job import WirePrecision
from edl_worker.core.push_pipeline import PushOutcome
from edl_worker.transport import server_calls
from edl_worker.transport.log_index import LogIndex
from edl_worker.transport.partitions import BufferChain, PartitionedIds
from edl_worker.transport.server_calls import ParameterServerLostError

IDS = ids_of(0), ids_of(1)
AFTER = [-20, -21, -22, -23, 24, 26]
"""The values after ``push``: 0 to 3 less twice 10 to 13, and 4 and 5 plus 20 and 21."""

# --- pieces ------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 9), max_size=5), data=st.data())
def test_pieces_of_memory_are_cut_as_if_they_were_one(sizes: list[int], data: Any) -> None:
    whole = bytes(range(sum(sizes)))
    ends = np.cumsum(sizes).tolist()
    payload = BufferChain([memoryview(whole[e - n : e]) for e, n in zip(ends, sizes, strict=True)])
    assert payload.nbytes == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert b"".join(payload.pieces(start, stop)) == whole[start:stop]
    assert bytes(payload.join(start, stop)) == whole[start:stop]


@given(
    tables=st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=8), max_size=3),
    widths=st.sampled_from([(1, 3, 2), (2, 2, 3), (3, 3, 3), (2, 3, 2)]),
    servers=st.integers(1, 4),
    dtype=st.sampled_from([np.float32, np.uint16]),
)
def test_rows_that_were_divided_are_joined_in_the_order_of_their_ids(
    tables: list[list[int]], widths: tuple[int, ...], servers: int, dtype: Any
) -> None:
    dims = widths[: len(tables)]
    counted = [TableRows(n, len(ids)) for n, ids in enumerate(tables)]
    flat = np.array([one for ids in tables for one in ids], np.int64)
    ids = PartitionedIds(counted, as_bytes(flat) if flat.size else memoryview(b""), dims, servers)
    size = sum(len(one) * dim for one, dim in zip(tables, dims, strict=True))
    rows = np.arange(size, dtype=dtype)
    parts = ids.divide(as_bytes(rows) if size else memoryview(b""), rows.dtype)
    for number in range(servers):
        mine = np.frombuffer(ids.of(number), np.int64)
        assert (server_of(mine, servers) == number).all()
        owned = [[one for one in table if one in mine] for table in tables]
        assert [one.count for one in ids.counts(number)] == list(map(len, owned))
        assert mine.tolist() == [one for table in owned for one in table]
        assert parts[number].nbytes == ids.row_nbytes(number, rows.dtype)
    out = np.zeros_like(rows)
    found = [np.frombuffer(part, np.uint8) for part in parts]
    ids.join(found, as_bytes(out) if size else memoryview(bytearray()), out.dtype)
    np.testing.assert_array_equal(out, rows)


@given(
    tables=st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=3),
    others=st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=3),
)
def test_only_the_same_ids_of_the_same_tables_are_divided_alike(
    tables: list[list[int]], others: list[list[int]]
) -> None:
    def request(rows: list[list[int]]) -> tuple[tuple[TableRows, ...], memoryview]:
        flat = np.array([one for ids in rows for one in ids], np.int64)
        counted = tuple(TableRows(n, len(ids)) for n, ids in enumerate(rows))
        return counted, as_bytes(flat) if flat.size else memoryview(b"")

    ids = PartitionedIds(*request(tables), [1, 2, 2], 2)
    assert ids.is_of(*request(tables))
    assert ids.is_of(*request(others)) is (tables == others)


def test_a_log_index_only_grows() -> None:
    index = LogIndex()
    for heard in (3, 7, 5):
        index.advance(heard)
    assert index.latest == 7


@pytest.fixture(params=["direct", "over gRPC"])
def job(request: Any) -> Iterator[Job]:
    yield from each_way(request.param, filled=True)


@pytest.fixture(params=["direct", "over gRPC"])
def empty_job(request: Any) -> Iterator[Job]:
    """A job whose servers have no values yet."""
    yield from each_way(request.param, filled=False)


def each_way(way: str, *, filled: bool) -> Iterator[Job]:
    job = Job(direct=way == "direct", filled=filled)
    yield job
    job.close()
    for part in job.parts:
        assert part.ways <= {way}, "the way that was to be tried"


def test_each_server_gets_its_part_and_the_master_the_bare_header(job: Job) -> None:
    job.log.skip_to(4)
    job.log_index.advance(2)
    together = threading.Barrier(2)  # both are asked at the same time, or none answers
    for part in job.parts:
        part.together = together
    reply, values, rows = push(job)
    assert reply.outcome is PushOutcome.APPLIED
    for ids, part, gradient in zip(IDS, job.parts, ([10, 11], [12, 13, 20, 21]), strict=True):
        prepared = part.payloads[0]
        dense = np.frombuffer(prepared[: 4 * len(gradient)], np.float32)
        np.testing.assert_array_equal(dense, gradient)
        at = dense.nbytes + ids.nbytes
        np.testing.assert_array_equal(np.frombuffer(prepared[dense.nbytes : at], np.int64), ids)
        sent = np.frombuffer(prepared[at:], np.float32).reshape(-1, DIM)
        np.testing.assert_array_equal(sent, np.stack([ids, ids], axis=1))
        assert part.headers[0].log_index == 2, "what the worker had been told before"
        assert part.headers[1].log_index == 5, "and by the answer to this push"
    (commit,) = job.master.headers
    assert commit.claim.lease.token == 9
    assert job.master.payloads == [b""]
    # What came back is in its place: values by server, rows in the order asked for.
    np.testing.assert_array_equal(values, AFTER)
    np.testing.assert_array_equal(rows, [-7, -21, -3, -9, -5, -15])


def test_large_pushes_are_answered_like_small_ones(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_calls, "_WORTH_THREADS", 0)
    together = threading.Barrier(2)
    for part in job.parts:
        part.together = together
    reply, values, rows = push(job)
    assert reply.outcome is PushOutcome.APPLIED
    np.testing.assert_array_equal(values, AFTER)
    np.testing.assert_array_equal(rows, [-7, -21, -3, -9, -5, -15])


def test_all_servers_are_connected_to_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else hosts that are lost together would cost a deadline each."""
    monkeypatch.setattr(raw_calls, "_CONNECT_S", WAIT_S)
    together, offer = threading.Barrier(2), Listener.offer

    def offer_together(listener: Listener, caller: Callable[[], Identity]) -> pb.OpenReply:
        together.wait(WAIT_S)
        return offer(listener, caller)

    monkeypatch.setattr(Listener, "offer", offer_together)
    job = Job(direct=True)
    reply, _, _ = push(job)
    assert reply.outcome is PushOutcome.APPLIED
    job.close()


def test_servers_are_called_directly_where_they_can_be() -> None:
    job = Job(direct=True)
    push(job)
    assert [part.ways for part in job.parts] == [{"direct"}, {"direct"}]
    job.close()


def test_the_direct_way_to_a_server_is_left_for_its_successors() -> None:
    job = Job(direct=True)
    before = job.parts
    push(job)
    for part in before:
        part.close()
    job.master.error = EdlError(ErrorCode.STALE_INCARNATION, "the master was replaced")
    with pytest.raises(grpc.RpcError) as failed:
        push(job)
    told = EdlError.from_rpc(failed.value)
    assert told is not None
    assert told.code == ErrorCode.STALE_INCARNATION
    heard = [len(part.headers) for part in before]
    # As a worker does that has registered again.
    job.master.error = None
    job.replace_servers()
    reply, values, _ = push(job)
    assert reply.outcome is PushOutcome.APPLIED
    np.testing.assert_array_equal(values, AFTER)
    assert [part.ways for part in job.parts] == [{"direct"}, {"direct"}]
    assert [len(part.headers) for part in before] == heard
    job.close()


def test_numbers_of_16_bits_are_cut_where_the_same_numbers_of_32_are(job: Job) -> None:
    reply, values, rows = push_half(job)
    assert reply.outcome is PushOutcome.APPLIED
    gradients, states = ([10, 11], [12, 13]), ([], [20, 21])
    for ids, part, gradient, state in zip(IDS, job.parts, gradients, states, strict=True):
        prepared = part.payloads[0]
        assert prepared[:4] == np.array(gradient, np.float16).tobytes()
        at = 4 + 4 * len(state)
        assert prepared[4:at] == floats(*state).tobytes()
        assert prepared[at : at + ids.nbytes] == ids.tobytes()
        sent = np.frombuffer(prepared[at + ids.nbytes :], np.float16).reshape(-1, DIM)
        np.testing.assert_array_equal(sent, np.stack([ids, ids], axis=1))
    assert reply.precision is WirePrecision.FLOAT16
    assert values == np.array(AFTER[:4], np.float16).tobytes() + floats(*AFTER[4:]).tobytes()
    assert rows == np.array([-7, -21, -3, -9, -5, -15], np.float16).tobytes()


def test_if_one_server_answers_whole_all_do(job: Job) -> None:
    """What is put together must be of one kind."""
    job.parts[1].values[0] = 1e6  # has no place in 16 bits
    reply, values, rows = push_half(job)
    assert reply.precision is WirePrecision.FLOAT32
    assert values == floats(*AFTER[:2], 1e6 - 24, *AFTER[3:]).tobytes()
    assert rows == floats(-7, -21, -3, -9, -5, -15).tobytes()
    asked = [[h.precision for h in part.headers[1:]] for part in job.parts]
    assert asked == [[job_pb2.FLOAT16, job_pb2.FLOAT32]] * 2


def test_a_gradient_that_one_server_finds_not_finite_is_never_counted(job: Job) -> None:
    job.parts[1].finds_finite = False
    reply, _, _ = push(job)
    assert reply.outcome is PushOutcome.INVALID
    assert job.master.headers == []


def test_without_the_next_step_permit_nothing_is_fetched(job: Job) -> None:
    job.master.grants_permits = False
    reply, _, _ = push(job)
    assert reply.outcome is PushOutcome.APPLIED
    assert [len(part.headers) for part in job.parts] == [1, 1]


def test_a_version_that_is_there_is_not_fetched_again(job: Job) -> None:
    reply, values = pull(job, have_version=0)
    assert reply.nbytes == BORDERS[-1]
    np.testing.assert_array_equal(values, [0, 1, 2, 3, 4, 5])
    reply, _ = pull(job, have_version=1)
    assert reply.nbytes == 0
    assert all(part.headers[-1].only_rows for part in job.parts)


def test_a_frozen_version_is_the_servers_own_affair(job: Job) -> None:
    job.log.version = 11
    job.log.freeze("final")
    job.log.skip_to(4)
    job.log_index.advance(4)
    reply, values = pull(job, frozen="final")
    assert reply.version == 11
    np.testing.assert_array_equal(values, [0, 1, 2, 3, 4, 5])
    assert job.master.headers == []
    assert all(part.headers[0].log_index == 4 for part in job.parts), "it is frozen by then"


def test_initial_values_are_offered_to_all_before_the_master_decides(empty_job: Job) -> None:
    job = empty_job
    values = as_bytes(np.arange(6, dtype=np.float32))
    assert job.client.initialize(CALLER, values, WAIT_S)
    assert b"".join(part.payloads[0] for part in job.parts) == bytes(values)
    assert [type(header) for header in job.master.headers] == [pb.CommitInitialValuesRequest]
    assert job.log_index.latest == 1


def test_initial_rows_go_to_their_servers(empty_job: Job) -> None:
    job, every = empty_job, np.arange(ROWS)
    rows = as_bytes(np.zeros((ROWS, DIM), np.float32))
    assert job.client.put_rows(CALLER, 0, as_bytes(every), rows, WAIT_S)
    assert sum(part.headers[0].rows.count for part in job.parts) == ROWS
    for number, part in enumerate(job.parts):
        count = part.headers[0].rows.count
        ids = np.frombuffer(part.payloads[0][: 8 * count], np.int64)
        assert (server_of(ids, 2) == number).all()


def test_all_rows_are_scanned_one_server_after_the_other(job: Job) -> None:
    job.log.freeze("final")
    job.log_index.advance(1)
    found: list[int] = []
    cursor, more = 0, True
    while more:
        request = ScanRequest("final", table=0, dim=DIM, cursor=cursor, most=2)
        page = job.client.scan_rows(CALLER, request, WAIT_S)
        flat = np.frombuffer(page.ids, np.int64)
        np.testing.assert_array_equal(
            np.frombuffer(page.rows, np.float32), np.stack([flat, -flat], axis=1).reshape(-1)
        )
        found += flat.tolist()
        cursor, more = page.cursor, page.more
    assert sorted(found) == list(range(ROWS))


# --- what goes wrong ---------------------------------------------------------------------------


def silent_address() -> tuple[str, Callable[[], None]]:
    """Return an address that accepts connections and never answers, as if packets vanished."""
    listening = socket.create_server(("127.0.0.1", 0))
    return f"127.0.0.1:{listening.getsockname()[1]}", listening.close


def test_the_new_master_reports_servers_that_are_gone(job: Job) -> None:
    """They ended with their master: what matters is that there is another incarnation."""
    job.parts[1].close()
    job.master.error = EdlError(ErrorCode.STALE_INCARNATION, "the master was replaced")
    with pytest.raises(grpc.RpcError) as failed:
        push(job)
    told = EdlError.from_rpc(failed.value)
    assert told is not None
    assert told.code == ErrorCode.STALE_INCARNATION
    assert job.master.headers[0].incarnation == "inc"


def test_the_master_reports_a_silent_server_after_the_deadline(job: Job) -> None:
    address, close = silent_address()
    client = job.connect([job.parts[0].address, address])
    job.master.error = EdlError(ErrorCode.STALE_INCARNATION, "the master was replaced")
    started = time.monotonic()
    with pytest.raises(grpc.RpcError) as failed:
        push(job, client, timeout_s=0.5)
    assert time.monotonic() - started < WAIT_S
    told = EdlError.from_rpc(failed.value)
    assert told is not None
    assert told.code == ErrorCode.STALE_INCARNATION
    client.close()
    close()


def test_while_the_master_is_the_same_the_call_is_to_be_tried_again(job: Job) -> None:
    """A broken connection is such a case: the worker repeats the call, the ledger sorts it out."""
    job.parts[0].close()
    with pytest.raises(ParameterServerLostError) as failed:
        push(job)
    assert failed.value.number == 0
    assert failed.value.address in str(failed.value)
    assert "UNAVAILABLE" in failed.value.cause
    assert [type(header) for header in job.master.headers] == [pb.PermitRequest], "nothing counted"


def test_a_servers_refusal_is_passed_on_unchanged(job: Job) -> None:
    job.parts[0].error = EdlError(ErrorCode.SHAPE_MISMATCH, "another layout")
    with pytest.raises(grpc.RpcError) as failed:
        push(job)
    told = EdlError.from_rpc(failed.value)
    assert told is not None
    assert told.code == ErrorCode.SHAPE_MISMATCH
    job.parts[0].error = None
    reply, values, _ = push(job)
    assert reply.outcome is PushOutcome.APPLIED
    np.testing.assert_array_equal(values, AFTER)  # no answer to the refused push was left


def test_a_part_of_another_size_is_refused(job: Job) -> None:
    job.parts[0].values = floats(0, 1, 2)
    with pytest.raises(FrameError, match="part of 8"):
        pull(job)
