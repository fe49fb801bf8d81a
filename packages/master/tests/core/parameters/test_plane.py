"""What the parameter plane promises, one sentence a test."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from edl_master.core.identifiers import Token
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Sync, UpdateMode
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.permits import PermitGranted, PermitPending, PermitRefused
from edl_master.core.parameters.push import NotInitialized, PushOutcome
from edl_master.core.parameters.snapshot import Snapshot, SnapshotError

from .planes import (
    FOUR,
    ONE,
    THREE,
    TWO,
    A,
    B,
    C,
    ParameterPlane,
    assert_same_arrays,
    assert_same_state,
    push,
    sgd,
    small_plane,
    values_of,
)

MODES: list[UpdateMode] = [Async(), Bounded(2), Sync(1), Sync(3)]
every_mode = pytest.mark.parametrize("mode", MODES, ids=str)


class TestValues:
    def test_the_first_initial_values_count(self) -> None:
        plane = ParameterPlane(Layout([Variable("w", (2,), "float32", True)]), sgd(), Async())
        assert not plane.initialized
        assert plane.initialize(np.array([1, 2], np.float32))
        assert not plane.initialize(np.array([3, 4], np.float32))
        assert plane.initialized
        assert values_of(plane).tolist() == [1, 2]

    def test_nothing_is_served_before_there_are_values(self) -> None:
        plane = ParameterPlane(Layout([Variable("w", (2,), "float32", True)]), sgd(), Async())
        plane.grant(A, ONE)
        for use in (
            lambda: plane.read_parameters(bytearray(8)),
            lambda: plane.freeze("evaluation"),
            lambda: push(plane, A, 1, 0, [0, 0]),
        ):
            with pytest.raises(NotInitialized):
                use()
        waiting = plane.request_permit(A, ONE)
        assert waiting == PermitPending(plane.generation)
        plane.initialize(bytes(8))
        assert plane.generation != waiting.generation
        assert plane.request_permit(A, ONE) == PermitGranted(plane.version)

    def test_slots_of_the_optimizer_are_read_as_frozen_values_are(self) -> None:
        plane = small_plane(Async(), sgd(momentum=0.5))
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [-1, -2], state=[3])
        push(plane, A, 1, 1, [-1, -2], state=[3])
        out = np.empty(3, np.float32)
        assert plane.read_frozen("slots/momentum", out) == 2, "the number of updates"
        assert out[:2].tolist() == [1.5, 3]
        assert plane.read_frozen("slots/", out) == 2
        assert out.tolist() == values_of(plane).tolist()
        with pytest.raises(KeyError, match="velocity"):
            plane.read_frozen("slots/velocity", out)

    def test_frozen_values_stay_while_training_goes_on(self) -> None:
        plane = small_plane(Async())
        plane.grant(A, ONE)
        assert plane.freeze("evaluation 0") == 0
        push(plane, A, 1, 0, [-1, -2], state=[3])
        out = np.empty(3, np.float32)
        assert plane.read_frozen("evaluation 0", out) == 0
        assert out.tolist() == [0, 0, 0]
        assert plane.freeze("evaluation 0") == 0, "a name keeps what it was given first"
        assert plane.freeze("evaluation 1") == 1
        assert plane.read_frozen("evaluation 1", out) == 1
        assert out.tolist() == [1, 2, 3]
        assert plane.release("evaluation 0")
        assert not plane.release("evaluation 0")
        with pytest.raises(KeyError, match="evaluation 0"):
            plane.read_frozen("evaluation 0", out)


class TestExactlyOnce:
    @every_mode
    def test_a_push_counts_its_minibatch(self, mode: UpdateMode) -> None:
        plane = small_plane(mode)
        assert plane.grant(A, ONE) == 0
        assert push(plane, A, 1, 0, [-1, 0]).outcome is PushOutcome.APPLIED
        assert push(plane, A, 1, 1, [-1, 0]).outcome is PushOutcome.APPLIED
        assert plane.applied_counts() == {A: 2}

    @every_mode
    def test_a_repeated_push_changes_nothing(self, mode: UpdateMode) -> None:
        plane = small_plane(mode)
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [-1, 0], base=0)
        before = plane.snapshot()
        assert push(plane, A, 1, 0, [-1, 0], base=0).outcome is PushOutcome.ALREADY_APPLIED
        assert_same_state(plane.snapshot(), before)

    @every_mode
    def test_a_gap_is_out_of_order(self, mode: UpdateMode) -> None:
        plane = small_plane(mode)
        plane.grant(A, ONE)
        before = plane.snapshot()
        assert push(plane, A, 1, 1, [-1, 0]).outcome is PushOutcome.OUT_OF_ORDER
        assert_same_state(plane.snapshot(), before)

    @every_mode
    def test_the_next_holder_of_a_task_skips_what_was_applied(self, mode: UpdateMode) -> None:
        plane = small_plane(mode)
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [-1, 0])
        plane.revoke(A, ONE)
        assert plane.grant(A, TWO) == 1
        assert push(plane, A, 2, 1, [-1, 0]).outcome is PushOutcome.APPLIED

    @every_mode
    def test_a_former_holder_can_push_no_more(self, mode: UpdateMode) -> None:
        plane = small_plane(mode)
        plane.grant(A, ONE)
        plane.grant(A, TWO)
        before = plane.snapshot()
        assert push(plane, A, 1, 0, [-1, 0]).outcome is PushOutcome.REFUSED
        plane.revoke(A, TWO)
        assert push(plane, A, 2, 0, [-1, 0]).outcome is PushOutcome.REFUSED
        plane.close(A)
        assert push(plane, A, 2, 0, [-1, 0]).outcome is PushOutcome.REFUSED
        assert push(plane, B, 9, 0, [-1, 0]).outcome is PushOutcome.REFUSED
        assert_same_arrays(plane.snapshot(), before)

    def test_a_lease_that_is_granted_again_with_the_same_token_stays_as_it_is(self) -> None:
        plane = small_plane(Sync(1))
        plane.grant(A, ONE)
        plane.request_permit(A, ONE)
        assert plane.grant(A, ONE) == 0
        assert plane.ledger.permits_held == 1

    def test_an_older_token_is_never_granted(self) -> None:
        plane = small_plane(Async())
        plane.grant(A, TWO)
        with pytest.raises(ValueError, match="token 1 is not newer than 2"):
            plane.grant(A, ONE)
        plane.revoke(A, TWO)
        with pytest.raises(ValueError, match="token 2 is not newer than 2"):
            plane.grant(A, TWO)
        assert not plane.revoke(A, TWO)

    def test_a_grant_that_is_refused_takes_nothing_from_the_holder(self) -> None:
        plane = small_plane(Sync(1))
        plane.grant(A, TWO)
        plane.request_permit(A, TWO)
        with pytest.raises(ValueError, match="not newer"):
            plane.grant(A, ONE)
        assert plane.ledger.permits_held == 1
        assert push(plane, A, 2, 0, [0, 0]).outcome is PushOutcome.APPLIED

    def test_closing_a_task_forgets_its_count(self) -> None:
        plane = small_plane(Async())
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [-1, 0])
        assert plane.applied_counts() == {A: 1}
        plane.close(A)
        assert plane.applied_counts() == {}
        plane.close(A)


class TestBadPushes:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @every_mode
    def test_a_gradient_that_is_not_finite_is_invalid_and_names_its_variable(
        self, mode: UpdateMode, bad: float
    ) -> None:
        plane = small_plane(mode)
        plane.grant(A, ONE)
        before = plane.snapshot()
        result = push(plane, A, 1, 0, [0, bad], state=[0])
        assert (result.outcome, result.detail) == (PushOutcome.INVALID, "w")
        result = push(plane, A, 1, 0, [0, 0], state=[bad])
        assert (result.outcome, result.detail) == (PushOutcome.INVALID, "moving_mean")
        assert_same_arrays(plane.snapshot(), before)
        assert plane.applied_counts() == {A: 0}
        assert push(plane, A, 1, 0, [0, 0], state=[0]).outcome is PushOutcome.APPLIED

    def test_wrong_sizes_and_no_records_are_errors_that_change_nothing(self) -> None:
        plane = small_plane(Sync(2))
        plane.grant(A, ONE)
        before = plane.snapshot()
        with pytest.raises(PayloadError, match="the gradient must have 8 bytes, not 12"):
            push(plane, A, 1, 0, [0, 0, 0])
        with pytest.raises(PayloadError, match="the state delta must have 4 bytes, not 8"):
            push(plane, A, 1, 0, [0, 0], state=[0, 0])
        with pytest.raises(ValueError, match="0 records"):
            push(plane, A, 1, 0, [0, 0], records=0)
        assert_same_state(plane.snapshot(), before)


class TestAsyncAndBounded:
    def test_each_gradient_is_an_update_and_state_deltas_add_up(self) -> None:
        plane = small_plane(Async())
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        assert push(plane, A, 1, 0, [-1, 0], base=0, state=[0.5], records=3).new_version
        result = push(plane, B, 2, 0, [0, -1], base=0, state=[0.25], records=1)
        assert (result.version, result.staleness, result.new_version) == (2, 1, True)
        assert values_of(plane).tolist() == [1, 1, 0.75]

    def test_a_gradient_of_a_version_that_a_restart_has_undone_is_stale(self) -> None:
        plane = small_plane(Async())
        plane.grant(A, ONE)
        result = push(plane, A, 1, 0, [-1, 0], base=7)
        assert (result.outcome, result.staleness) == (PushOutcome.STALE, 0)

    def test_bounded_takes_gradients_up_to_the_bound_and_none_older(self) -> None:
        plane = small_plane(Bounded(1))
        plane.grant(A, ONE)
        for minibatch in range(2):
            push(plane, A, 1, minibatch, [0, 0])
        result = push(plane, A, 1, 2, [-1, 0], base=0)
        assert (result.outcome, result.staleness) == (PushOutcome.STALE, 2)
        assert plane.applied_counts() == {A: 2}
        result = push(plane, A, 1, 2, [-1, 0], base=1)
        assert (result.outcome, result.staleness) == (PushOutcome.APPLIED, 1)

    @pytest.mark.parametrize("mode", [Async(), Bounded(0)], ids=str)
    def test_there_is_always_a_step_permit(self, mode: UpdateMode) -> None:
        plane = small_plane(mode)
        for number, task in enumerate((A, B, C), start=1):
            plane.grant(task, Token(number))
            assert plane.request_permit(task, Token(number)) == PermitGranted(plane.version)
        assert plane.request_permit(A, TWO) == PermitRefused()

    def test_flush_does_nothing(self) -> None:
        plane = small_plane(Async())
        assert not plane.flush()


class TestEndOfTraining:
    def test_an_average_takes_the_place_of_the_values(self) -> None:
        plane = small_plane(Async(), sgd(use_ema=True, ema_momentum=0.5))
        plane.grant(A, ONE)
        assert not plane.finish(), "there is no average before the first update"
        push(plane, A, 1, 0, [-1, 0])
        push(plane, A, 1, 1, [-1, 0])
        assert values_of(plane)[0] == 2
        assert plane.finish()
        assert (values_of(plane)[0], plane.version) == (1.5, 3)

    def test_accumulated_gradients_are_applied_first(self) -> None:
        plane = small_plane(Sync(3), sgd(use_ema=True, ema_momentum=0.5))
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [-1, 0])
        assert plane.finish()
        plane.check_invariants()
        assert (values_of(plane)[0], plane.ledger.accumulated) == (1, 0)

    def test_training_is_not_over_while_a_gradient_is_being_computed(self) -> None:
        plane = small_plane(Sync(3))
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [-1, 0])
        plane.request_permit(A, ONE)
        with pytest.raises(RuntimeError, match="not over"):
            plane.finish()
        plane.close(A)
        assert plane.finish()
        assert values_of(plane)[0] == 1

    def test_without_an_average_nothing_changes(self) -> None:
        plane = small_plane(Async())
        assert not plane.finish()
        assert plane.version == 0


class TestSnapshots:
    def test_meta_is_json_and_arrays_are_copies(self) -> None:
        plane = small_plane(Sync(2), parse_optimizer({"class_name": "Nadam", "config": {}}))
        plane.grant(A, ONE)
        for minibatch in range(3):
            push(plane, A, 1, minibatch, [-1, 1], state=[1])
        snapshot = plane.snapshot()
        meta = json.loads(json.dumps(snapshot.meta))
        again = {name: np.array(array) for name, array in snapshot.arrays.items()}
        assert set(again) == {
            "values/trainable/float32",
            "values/state/float32",
            "slots/momentum/trainable/float32",
            "slots/velocity/trainable/float32",
            "accumulated/gradient/trainable/float32",
            "accumulated/state/state/float32",
        }
        push(plane, A, 1, 3, [-1, 1])
        assert_same_arrays(snapshot, Snapshot(meta, again))

    def test_leases_and_counts_survive_and_step_permits_do_not(self) -> None:
        plane = small_plane(Sync(2))
        plane.grant(A, TWO)
        plane.grant(B, THREE)
        plane.revoke(B, THREE)
        push(plane, A, 2, 0, [-1, 0])
        plane.request_permit(A, TWO)
        restored = ParameterPlane.restore(plane.snapshot(), sgd(), plane.mode)
        restored.check_invariants()
        assert restored.ledger.permits_held == 0
        assert restored.ledger.accumulated == 1
        assert push(restored, A, 2, 0, [-1, 0]).outcome is PushOutcome.ALREADY_APPLIED
        assert push(restored, B, 3, 0, [-1, 0]).outcome is PushOutcome.REFUSED
        assert restored.grant(A, FOUR) == 1

    def test_another_model_is_refused_by_the_name_of_the_variable(self) -> None:
        snapshot = small_plane(Async()).snapshot()
        layout = Layout([Variable("w", (3,), "float32", True)])
        with pytest.raises(SnapshotError, match=r"another model: variable 'w' is float32\[2\]"):
            ParameterPlane.restore(snapshot, sgd(), Async(), layout=layout)

    def test_another_optimizer_is_refused_and_another_rate_is_not(self) -> None:
        snapshot = small_plane(Async(), sgd(1.0)).snapshot()
        adam = parse_optimizer({"class_name": "Adam", "config": {}})
        with pytest.raises(SnapshotError, match=r"trained with SGD.*Adam cannot use"):
            ParameterPlane.restore(snapshot, adam, Async())
        assert ParameterPlane.restore(snapshot, sgd(0.5), Async()).learning_rate() == 0.5

    def test_momentum_that_was_not_saved_is_missed(self) -> None:
        snapshot = small_plane(Async(), sgd(1.0)).snapshot()
        with pytest.raises(SnapshotError, match="lacks the array 'slots/momentum"):
            ParameterPlane.restore(snapshot, sgd(1.0, momentum=0.9), Async())

    def test_the_mode_may_change_only_between_versions(self) -> None:
        plane = small_plane(Sync(2))
        plane.grant(A, ONE)
        ParameterPlane.restore(plane.snapshot(), sgd(), Async())
        push(plane, A, 1, 0, [0, 0])
        with pytest.raises(SnapshotError, match="1 gradients accumulated under"):
            ParameterPlane.restore(plane.snapshot(), sgd(), Sync(1))

    def test_a_damaged_or_foreign_snapshot_is_refused(self) -> None:
        good = small_plane(Async()).snapshot()
        short = {**good.arrays, "values/state/float32": np.zeros(7, np.float32)}
        with pytest.raises(SnapshotError, match=r"float32\[7\] in the snapshot, not float32\[1\]"):
            ParameterPlane.restore(Snapshot(good.meta, short), sgd(), Async())
        with pytest.raises(SnapshotError, match="format 99"):
            ParameterPlane.restore(
                Snapshot({**good.meta, "format": 99}, good.arrays), sgd(), Async()
            )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Bounded(-1), "max-staleness must be at least 0, not -1"),
        (lambda: Sync(0), "grads-to-wait must be at least 1, not 0"),
        (lambda: Sync(1, Reduction("median")), "median"),
    ],
)
def test_modes_that_make_no_sense_are_refused(make: Callable[[], UpdateMode], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()
