"""The list of orders from the master to its parameter servers, and the marks into it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.events import HeldLease
from edl_master.core.identifiers import TaskKey, TaskType, Token, WorkerId
from edl_master.core.parameters.exchange import GradientPush, PushKind, TableFigures
from edl_master.core.parameters.following import Follower
from edl_master.core.parameters.layout import Variable
from edl_master.core.parameters.modes import Async, Sync, UpdateMode
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.plane import ParameterPlane
from edl_master.core.parameters.sharding import cut, for_part
from edl_master.guarded_plane import GuardedPlane
from edl_master.parameter_server.guarded import GuardedFollower
from edl_master.parameter_servers import command_codec
from edl_master.parameter_servers.group import Crew
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2, servers_pb2

LONG_S = 60.0
SIZE, SERVERS = 6, 2
VARIABLES = (Variable("w", (SIZE,), "float32", True),)
SGD = json.dumps({"class_name": "SGD", "config": {"learning_rate": 1.0}})


def make_crew(count: int = SERVERS) -> Crew:
    return Crew(job_pb2.JobSpec(name="j"), count, "inc", {}, "")


class Servers:
    """The servers of a leading plane, without processes: each carries out what it is sent."""

    def __init__(self, mode: UpdateMode) -> None:
        self.crew = make_crew()
        self.plane = GuardedPlane(lambda _: mode, None, BufferPool(), servers=self.crew)
        self.plane.describe(VARIABLES, SGD, "sum")
        self.followers = [GuardedFollower(BufferPool()) for _ in range(SERVERS)]
        self._left = [0] * SERVERS
        self._orders: list[Iterator[servers_pb2.Order]] = [
            self.crew.follow(n, f"server-{n}", lambda n=n: self._looks(n))  # type: ignore[misc]
            for n in range(SERVERS)
        ]
        self._seen = 0
        for number in range(SERVERS):
            order = self._take(number)
            assert order.HasField("begin")
            model = command_codec.model_from(order.begin)
            optimizer = parse_optimizer(json.loads(order.begin.model.optimizer_json))
            part = cut(model, SERVERS, optimizer)[number]
            follower = ParameterPlane(part.layout, for_part(optimizer, part.layout), mode)
            self.followers[number].begin(Follower(follower), model.fingerprint)

    def _looks(self, number: int) -> bool:
        self._left[number] -= 1
        return self._left[number] >= 0

    def _take(self, number: int) -> servers_pb2.Order:
        self._left[number] = 1
        order = next(self._orders[number], None)
        assert order is not None, "the mark counts an order that has not been given"
        return order

    def catch_up(self) -> None:
        """Carry out exactly the orders that the plane's mark counts, and no more."""
        for _ in range(self.plane.mark - self._seen):
            for number, follower in enumerate(self.followers):
                follower.carry_out(command_codec.order_from(self._take(number)))
        self._seen = self.plane.mark

    def stage(self, worker: int, push: GradientPush) -> None:
        for number, follower in enumerate(self.followers):
            start, stop = self.plane.parts[number].start, self.plane.parts[number].stop
            part = replace(push, gradient=memoryview(push.gradient)[start:stop])
            broken, _ = follower.stage(WorkerId(worker), part, self._seen, lambda: None)
            assert not broken

    def values(self) -> list[float]:
        found = []
        for follower in self.followers:
            with follower.pulled(have=None, mark=self.plane.mark) as pulled:
                found += np.frombuffer(pulled.values, np.float32).tolist()
        return found


def task(number: int) -> TaskKey:
    return TaskKey(TaskType.TRAINING, 0, number)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), mode=st.sampled_from([Async(), Sync(1)]))
def test_a_mark_never_names_an_order_that_has_yet_to_be_given(data: Any, mode: UpdateMode) -> None:
    """Else whoever has heard it would wait for what somebody else decides, or the next snapshot."""
    servers = Servers(mode)
    plane = servers.plane
    values = memoryview(np.zeros(SIZE, np.float32)).cast("B")
    for number, follower in enumerate(servers.followers):
        part = plane.parts[number]
        follower.initialize(values[part.start : part.stop], WorkerId(0))
    assert plane.initialize(memoryview(b""), WorkerId(0)) == (True, 0)
    tokens, counts, token = {0: 0, 1: 0}, {0: 0, 1: 0}, 0
    for step in range(data.draw(st.integers(1, 20))):
        number = data.draw(st.sampled_from([0, 1]))
        match data.draw(st.sampled_from(["push", "push", "grant", "revoke", "keep", "freeze"])):
            case "grant":
                token += 1
                tokens[number] = token
                plane.grant(task(number), Token(token))
            case "revoke" if tokens[number]:
                plane.revoke(task(number), Token(tokens[number]))
                tokens[number] = 0
            case "keep":
                assert plane.snapshot("snapshots") is not None
            case "freeze":
                plane.freeze(str(step))
                plane.release(str(step))
            case "push" if tokens[number]:
                held = HeldLease(task(number), Token(tokens[number]))
                with plane.pulled(have=None, slot_for=held) as pulled:
                    assert pulled.slot is not None
                    version = pulled.version
                servers.catch_up()  # as a worker's mark has it
                push = GradientPush(
                    held.task,
                    held.token,
                    counts[number],
                    1,
                    version,
                    memoryview(np.full(SIZE, -1, np.float32)).cast("B"),
                )
                servers.stage(number, push)
                assert plane.push(replace(push, gradient=b"")).kind is PushKind.APPLIED
                counts[number] += 1
        # Would wait for ever if the mark were ahead of what was given.
        if data.draw(st.booleans()):
            servers.catch_up()
    servers.catch_up()
    assert servers.values() == [float(sum(counts.values()))] * SIZE


def test_a_server_waits_for_the_order_that_a_worker_has_heard_of_and_no_longer() -> None:
    servers = Servers(Async())
    answered = threading.Event()

    def pull() -> None:
        with servers.followers[0].pulled(have=None, mark=2):
            answered.set()

    servers.plane.grant(task(0), Token(1))
    waiting = threading.Thread(target=pull, daemon=True)
    waiting.start()
    servers.catch_up()
    assert not answered.is_set()
    servers.plane.grant(task(1), Token(2))
    servers.catch_up()
    waiting.join(LONG_S)
    assert answered.is_set()


def test_there_is_one_of_each_server() -> None:
    crew = make_crew()
    next_orders = crew.follow(0, "here", lambda: False)
    assert list(next_orders) == []
    for number in (0, 2):
        with pytest.raises(EdlError) as refused:
            next(crew.follow(number, "there", lambda: True))
        assert refused.value.code == error_pb2.USAGE
    assert crew.addresses() == {0: "here"}


def test_tables_are_as_large_as_their_parts_together() -> None:
    servers = Servers(Async())
    servers.crew.told_tables(0, TableFigures({"users": 3, "items": 1}, 100))
    servers.crew.told_tables(1, TableFigures({"users": 2, "items": 0}, 50))
    servers.crew.told_tables(1, TableFigures({"users": 4, "items": 0}, 60))
    status = servers.plane.status()
    assert status is not None
    assert status.tables == TableFigures({"users": 7, "items": 1}, 160)
    assert servers.plane.table_rows() == {"users": 7, "items": 1}


def test_a_server_at_work_does_not_wait_to_say_how_large_its_tables_are() -> None:
    """An update may take longer than the master waits for a word."""
    follower = Servers(Async()).followers[0]
    working, done = threading.Event(), threading.Event()

    def work() -> None:
        with follower._changed:
            working.set()
            done.wait(LONG_S)

    thread = threading.Thread(target=work)
    thread.start()
    assert working.wait(LONG_S)
    assert follower.tables() is None
    done.set()
    thread.join()
    assert follower.tables() == TableFigures({}, 0)


def test_a_snapshot_took_as_long_as_its_slowest_part_was_written() -> None:
    """And not as long as a server that was still starting: that says nothing about the disk."""
    crew = make_crew()
    crew.told_kept(0, "label", 0.25)
    told = threading.Timer(0.2, crew.told_kept, (1, "label", 0.125))
    told.start()
    assert crew.wait_kept("label", LONG_S) == 0.25


def test_waiting_for_parts_ends_with_the_crew() -> None:
    crew = make_crew()
    crew.told_kept(0, "label", 0.1)
    closing = threading.Timer(0.05, crew.close)
    closing.start()
    with pytest.raises(EdlError) as ended:
        crew.wait_kept("label", LONG_S)
    assert ended.value.code == error_pb2.NOT_READY
    assert crew.over
