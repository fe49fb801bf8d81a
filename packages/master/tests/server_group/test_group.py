"""The command log from the coordinator to its parameter servers, and indexes into it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.identifiers import HeldLease, TaskKey, TaskType, Token, WorkerId
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.modes import Async, Sync, UpdateMode
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.permits import PermitGranted
from edl_master.core.parameters.push import Gradient, PushClaim, PushOutcome
from edl_master.core.parameters.shard import Shard
from edl_master.core.parameters.shard_layout import shard_layouts, shard_optimizer
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.core.parameters.store import ParameterStore
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.job_model import JobModel
from edl_master.parameters.locked_shard import LockedShard, ReadRequest
from edl_master.server_group import command_codec
from edl_master.server_group.group import ParameterServerGroup
from edl_master.server_group.remote_stores import RemoteStores
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, servers_pb2

LONG_S = 200.0
SIZE, SERVERS = 6, 2
VARIABLES = (Variable("w", (SIZE,), "float32", True),)
SGD = json.dumps({"class_name": "SGD", "config": {"learning_rate": 1.0}})


def make_group(count: int = SERVERS) -> ParameterServerGroup:
    return ParameterServerGroup(job_pb2.JobSpec(name="j"), count, "inc", {}, "")


class Servers:
    """A coordinator and its parameter servers, without processes."""

    def __init__(self, mode: UpdateMode) -> None:
        self.group = make_group()
        stores = RemoteStores(self.group)
        self.coordinator = Coordinator(stores)
        JobModel(self.coordinator, stores, lambda *_: mode).describe(VARIABLES, SGD, "sum")
        self.shards = [
            LockedShard(BufferPool(), lambda taken: None, lambda error: None)
            for _ in range(SERVERS)
        ]
        self._left = [0] * SERVERS
        self._entries: list[Iterator[bytes]] = [
            self.group.follow(n, f"server-{n}", lambda n=n: self._looks(n)) for n in range(SERVERS)
        ]
        self._seen = 0
        for number in range(SERVERS):
            entry = self._take(number)
            assert entry.HasField("begin")
            model = command_codec.model_from(entry.begin)
            optimizer = parse_optimizer(json.loads(entry.begin.model.optimizer_json))
            part = shard_layouts(model, SERVERS, optimizer)[number]
            store = ParameterStore(part.layout, shard_optimizer(optimizer, part.layout), mode)
            self.shards[number].begin(Shard(store), model.fingerprint, is_warm=True)

    def _looks(self, number: int) -> bool:
        self._left[number] -= 1
        return self._left[number] >= 0

    def _take(self, number: int) -> servers_pb2.CommandEntry:
        self._left[number] = 1
        found = next(self._entries[number], None)
        assert found is not None, "the log index counts a command that was not appended"
        return servers_pb2.CommandEntry.FromString(found)

    def catch_up(self) -> None:
        """Apply exactly the commands that the log index counts, and no more."""
        for _ in range(self.coordinator.log_index - self._seen):
            for number, shard in enumerate(self.shards):
                shard.apply(command_codec.command_from(self._take(number)))
        self._seen = self.coordinator.log_index

    def prepare(self, worker: int, claim: PushClaim, gradient: memoryview) -> None:
        for number, shard in enumerate(self.shards):
            part = self.coordinator.shard_layouts[number]
            not_finite, _ = shard.prepare(
                WorkerId(worker),
                claim.key,
                Gradient(gradient[part.start : part.stop]),
                self._seen,
                lambda: None,
            )
            assert not not_finite

    def values(self) -> list[float]:
        found = []
        for shard in self.shards:
            with shard.read(ReadRequest(), self.coordinator.log_index) as reading:
                found += np.frombuffer(reading.values, np.float32).tolist()
        return found


def task(number: int) -> TaskKey:
    return TaskKey(TaskType.TRAINING, 0, number)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), mode=st.sampled_from([Async(), Sync(1)]))
def test_a_log_index_never_names_a_command_that_was_not_appended(
    data: Any, mode: UpdateMode
) -> None:
    """Otherwise a worker would wait for an unrelated command, or for the next snapshot."""
    servers = Servers(mode)
    plane = servers.coordinator
    values = memoryview(np.zeros(SIZE, np.float32)).cast("B")
    for number, shard in enumerate(servers.shards):
        part = plane.shard_layouts[number]
        shard.propose(WorkerId(0), values[part.start : part.stop])
    assert plane.commit_initial_values(WorkerId(0))
    tokens, counts, token = {0: 0, 1: 0}, {0: 0, 1: 0}, 0
    for step in range(data.draw(st.integers(1, 20))):
        number = data.draw(st.sampled_from([0, 1]))
        match data.draw(st.sampled_from(["push", "push", "grant", "revoke", "snapshot", "freeze"])):
            case "grant":
                token += 1
                tokens[number] = token
                plane.grant(task(number), Token(token))
            case "revoke" if tokens[number]:
                plane.revoke(task(number), Token(tokens[number]))
                tokens[number] = 0
            case "snapshot":
                assert plane.snapshot("snapshots") is not None
            case "freeze":
                plane.freeze(str(step))
                plane.release(str(step))
            case "push" if tokens[number]:
                held = HeldLease(task(number), Token(tokens[number]))
                permit = plane.wait_for_permit(held, 0.0)
                assert isinstance(permit, PermitGranted)
                servers.catch_up()  # as a worker's log index has it
                claim = PushClaim(held.task, held.token, counts[number], 1, permit.version)
                gradient = memoryview(np.full(SIZE, -1, np.float32)).cast("B")
                servers.prepare(number, claim, gradient)
                assert plane.commit(claim).outcome is PushOutcome.APPLIED
                counts[number] += 1
        # Would wait for ever if the log index were ahead of the log.
        if data.draw(st.booleans()):
            servers.catch_up()
    servers.catch_up()
    assert servers.values() == [float(sum(counts.values()))] * SIZE


def test_a_server_waits_for_the_command_that_a_worker_names_and_no_longer() -> None:
    servers = Servers(Async())
    for shard in servers.shards:
        shard.propose(WorkerId(0), memoryview(bytes(4 * SIZE // SERVERS)))
    answered = threading.Event()

    def pull() -> None:
        with servers.shards[0].read(ReadRequest(), 2):
            answered.set()

    servers.coordinator.commit_initial_values(WorkerId(0))
    waiting = threading.Thread(target=pull, daemon=True)
    waiting.start()
    servers.catch_up()
    assert not answered.is_set()
    servers.coordinator.freeze("f")
    servers.catch_up()
    waiting.join(LONG_S)
    assert answered.is_set()


def test_there_is_one_of_each_server() -> None:
    group = make_group()
    entries = group.follow(0, "here", lambda: False)
    assert list(entries) == []
    for number in (0, 2):
        with pytest.raises(EdlError) as refused:
            group.follow(number, "there", lambda: True)
        assert refused.value.code == ErrorCode.USAGE
    assert group.addresses() == {0: "here"}


def test_tables_are_as_large_as_their_parts_together() -> None:
    servers = Servers(Async())
    servers.group.report_tables(0, TableStatistics({"users": 3, "items": 1}, 100))
    servers.group.report_tables(1, TableStatistics({"users": 2, "items": 0}, 50))
    servers.group.report_tables(1, TableStatistics({"users": 4, "items": 0}, 60))
    assert servers.coordinator.tables() == TableStatistics({"users": 7, "items": 1}, 160)


def test_a_busy_server_does_not_wait_to_report_the_sizes_of_its_tables() -> None:
    """An update may take longer than the master waits for a report."""
    shard = Servers(Async()).shards[0]
    working, done = threading.Event(), threading.Event()

    def work() -> None:
        with shard._changed:
            working.set()
            done.wait(LONG_S)

    thread = threading.Thread(target=work)
    thread.start()
    assert working.wait(LONG_S)
    assert shard.tables() is None
    done.set()
    thread.join()
    assert shard.tables() == TableStatistics({}, 0)


def test_a_snapshot_took_as_long_as_its_slowest_part_was_written() -> None:
    """And not as long as a server that was still starting: that says nothing about the disk."""
    group = make_group()
    group.report_written(0, "label", 0.25)
    told = threading.Timer(0.2, group.report_written, (1, "label", 0.125))
    told.start()
    assert group.wait_written("label", LONG_S) == 0.25


def test_nothing_is_remembered_of_snapshots_that_were_overtaken() -> None:
    group = make_group()
    for number in range(100):
        for server in range(2):
            group.report_written(server, f"label-{number:08d}", 0.1)
    group.report_written(0, "label-00000007", 0.2)  # late: the first try to report it had failed
    assert len(group._written) == 2
    assert group.wait_written("label-00000099", LONG_S) == 0.1


def test_a_checkpoint_is_waited_for_after_a_later_snapshot() -> None:
    """The two are written by one thread, and only the newest of each."""
    group = make_group()
    for label in ("label-00000001", "label-00000002"):
        for server in range(2):
            group.report_written(server, label, 0.1)
    group.wait_written("label-00000002", LONG_S)
    group.wait_written("label-00000001", LONG_S)


def test_waiting_for_parts_ends_with_the_group() -> None:
    group = make_group()
    group.report_written(0, "label", 0.1)
    closing = threading.Timer(0.05, group.close)
    closing.start()
    with pytest.raises(EdlError) as ended:
        group.wait_written("label", LONG_S)
    assert ended.value.code == ErrorCode.NOT_READY
    assert group.over
