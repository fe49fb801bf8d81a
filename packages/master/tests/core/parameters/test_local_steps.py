"""Several minibatches in one push: counted together or not at all."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.commands import CommitPush, SetLearningRate
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Async, Bounded, Sync, UpdateMode
from edl_master.core.parameters.optimizers import OptimizerUnsupported, parse_optimizer
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.push import PushOutcome
from edl_master.server_group import command_codec
from edl_proto.v1 import job_pb2

from .planes import (
    A,
    B,
    ParameterPlane,
    a_push,
    assert_same_state,
    push,
    sgd,
    small_plane,
    training_task,
    values_of,
    zero_table,
)
from .sharded_plane import ShardedPlane

LOCAL = Async(local_steps=64)
ONE, TWO = Token(1), Token(2)
ADAM = parse_optimizer({"class_name": "Adam", "config": {"learning_rate": 0.5}})


def test_what_workers_have_done_is_added_as_it_is_whatever_the_optimizer() -> None:
    for optimizer in (sgd(0.1), sgd(0.1, momentum=0.9, weight_decay=0.5, clipvalue=0.01), ADAM):
        plane = small_plane(LOCAL, optimizer)
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        assert (
            push(plane, A, 1, 0, [1, 2], minibatches=3, state=[0.5]).outcome is PushOutcome.APPLIED
        )
        assert push(plane, B, 2, 0, [4, 8], minibatches=2, state=[0.25], base=0).staleness == 3
        assert values_of(plane).tolist() == [5, 10, 0.75]


def test_a_version_is_still_one_minibatch() -> None:
    plane = small_plane(LOCAL)
    plane.grant(A, ONE)
    assert push(plane, A, 1, 0, [1, 2], minibatches=3).version == 3
    assert push(plane, A, 1, 3, [1, 2]).version == 4
    assert plane.applied_counts() == {A: 4}
    plane.check_invariants()


def test_all_minibatches_of_a_push_count_or_none() -> None:
    plane = small_plane(LOCAL)
    plane.grant(A, ONE)
    push(plane, A, 1, 0, [1, 1], minibatches=3)
    before = plane.snapshot()
    for index, minibatches, outcome in [
        (0, 3, PushOutcome.ALREADY_APPLIED),
        (1, 2, PushOutcome.ALREADY_APPLIED),
        (2, 2, PushOutcome.OUT_OF_ORDER),
        (0, 4, PushOutcome.OUT_OF_ORDER),
        (4, 1, PushOutcome.OUT_OF_ORDER),
    ]:
        assert push(plane, A, 1, index, [1, 1], minibatches=minibatches).outcome is outcome
    assert plane.applied_counts() == {A: 3}
    assert_same_state(plane.snapshot(), before)


@pytest.mark.parametrize("mode", [Async(), Bounded(9), Sync(1)], ids=str)
def test_other_modes_take_one_minibatch_at_a_time(mode: UpdateMode) -> None:
    plane = small_plane(mode)
    plane.grant(A, ONE)
    with pytest.raises(PayloadError, match="more than the job's local steps"):
        push(plane, A, 1, 0, [1, 1], minibatches=2)
    assert plane.applied_counts() == {A: 0}


def test_a_push_stands_for_no_more_minibatches_than_there_are_local_steps() -> None:
    """A worker may say any number, and versions and schedules would go on by as much."""
    plane = small_plane(Async(local_steps=3))
    plane.grant(A, ONE)
    for claimed in (4, 2**32 - 1):
        with pytest.raises(PayloadError, match="more than the job's local steps"):
            push(plane, A, 1, 0, [1, 1], minibatches=claimed)
    assert push(plane, A, 1, 0, [1, 1], minibatches=3).outcome is PushOutcome.APPLIED
    assert plane.version == 3


def test_schedules_stand_where_the_minibatches_are() -> None:
    rate = {
        "class_name": "PiecewiseConstantDecay",
        "config": {"boundaries": [2], "values": [1.0, 0.5]},
    }
    plane = small_plane(
        LOCAL, parse_optimizer({"class_name": "SGD", "config": {"learning_rate": rate}})
    )
    plane.grant(A, ONE)
    assert plane.learning_rate() == 1.0
    push(plane, A, 1, 0, [1, 1], minibatches=3)
    assert plane.learning_rate() == 0.5


def test_the_master_keeps_no_state_of_the_optimizer() -> None:
    plane = small_plane(LOCAL, ADAM)
    assert not [name for name in plane.snapshot().arrays if name.startswith("slots/")]
    plane.grant(A, ONE)
    push(plane, A, 1, 0, [1, 2], minibatches=3)
    again = ParameterPlane.restore(plane.snapshot(), ADAM, LOCAL)
    assert again.grant(A, TWO) == 3
    assert push(again, A, 2, 3, [1, 2], minibatches=2).version == 5
    assert values_of(again).tolist() == [2, 4, 0]


def test_what_does_not_go_with_local_steps_is_refused() -> None:
    with pytest.raises(OptimizerUnsupported, match="local-steps"):
        small_plane(LOCAL, sgd(use_ema=True))
    with pytest.raises(ValueError, match="tables"):
        small_plane(LOCAL, tables=(zero_table(),))


@pytest.mark.parametrize("seed", range(100))
def test_each_minibatch_is_in_the_values_once_whatever_gets_lost(seed: int) -> None:
    """Workers push three minibatches at a time, die, repeat themselves and rise from the dead."""
    chance = random.Random(seed)
    tasks = {training_task(n): chance.randrange(1, 9) for n in range(3)}
    plane = ParameterPlane(Layout([Variable("w", (30,), "float32", True)]), sgd(), LOCAL)
    plane.initialize(bytes(120))
    tokens = itertools.count(1)
    sent: list[tuple[TaskKey, int, int, np.ndarray, int]] = []
    for task, minibatches in tasks.items():
        while True:
            token = next(tokens)
            index = plane.grant(task, Token(token))
            while index < minibatches and chance.random() > 0.2:
                count = min(3, minibatches - index)
                moves = np.zeros(30, np.float32)
                moves[10 * task.number + index : 10 * task.number + index + count] = 1
                sent.append((task, token, index, moves, count))
                if chance.random() < 0.8:  # else it never arrives, and the worker is thought dead
                    assert (
                        push(plane, *sent[-1][:4], minibatches=count).outcome is PushOutcome.APPLIED
                    )
                    index += count
                else:
                    break
                late = chance.choice(sent)
                assert push(plane, *late[:4], minibatches=late[4]).outcome in (
                    PushOutcome.ALREADY_APPLIED,
                    PushOutcome.REFUSED,
                    PushOutcome.OUT_OF_ORDER,
                )
            if index == minibatches:
                break
    expected = np.zeros(30)
    for task, minibatches in tasks.items():
        expected[10 * task.number : 10 * task.number + minibatches] = 1
    assert values_of(plane).tolist() == expected.tolist()


def test_several_servers_are_one_plane() -> None:
    model = Layout(
        [
            Variable("w", (7,), "float32", True),
            Variable("v", (3,), "float64", True),
            Variable("m", (2,), "float32", False),
        ]
    )
    one = ParameterPlane(model, ADAM, LOCAL)
    sharded = ShardedPlane(model, ADAM, LOCAL, 3)
    one.initialize(bytes(model.parameter_nbytes))
    sharded.begin(bytes(model.parameter_nbytes))
    for token in (1, 2):
        assert one.grant(A, Token(token)) == sharded.ledger.grant(A, Token(token))
        at = one.applied_counts()[A]
        for index, count in ((at, 3), (at + 3, 2)):
            numbers = np.arange(7, dtype=np.float32), np.arange(3, dtype=np.float64)
            gradient = b"".join(part.tobytes() for part in numbers)
            state = np.full(2, 0.5, np.float32).tobytes()
            moved = a_push(A, Token(token), index, 9, one.version, gradient, state, (), count)
            sharded.prepare(moved)
            assert sharded.coordinator.commit(moved.claim).outcome is PushOutcome.APPLIED
            assert one.push(moved).outcome is PushOutcome.APPLIED
            sharded.catch_up()
        out = bytearray(model.parameter_nbytes)
        one.read_parameters(memoryview(out))
        assert sharded.values() == bytes(out)
        assert sharded.ledger.version == one.version == 5 * token
        sharded = sharded.reshard_to(2)


def test_commands_and_modes_are_the_same_after_the_wire() -> None:
    command = CommitPush(A, ONE, 4, 9, Version(7), 3, worker=WorkerId(0))
    assert command_codec.command_from(command_codec.command_to(command, 1)) == command
    model = Layout([Variable("w", (7,), "float32", True)])
    for mode in (LOCAL, Async(), Bounded(3)):
        begin = command_codec.begin_to(job_pb2.JobSpec(), model, "{}", mode, 2, "")
        assert command_codec.mode_from(begin) == mode


@pytest.mark.parametrize(("mode", "moved"), [(Async(), -2.0), (LOCAL, 1.0)])
def test_a_learning_rate_that_was_set_counts_from_then_on(mode: UpdateMode, moved: float) -> None:
    plane = small_plane(mode, sgd(0.5))
    command = SetLearningRate(2.0)
    assert command_codec.command_from(command_codec.command_to(command, 1)) == command
    plane.shard.apply(command)
    plane.ledger.learning_rate = 2.0
    restored = ParameterPlane.restore(plane.snapshot(), sgd(0.5), mode)
    assert restored.ledger.learning_rate == 2.0
    for each in (plane, restored):
        each.grant(A, ONE)
        push(each, A, 1, 0, [1, 0])
        assert values_of(each)[0] == moved
