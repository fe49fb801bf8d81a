"""Synchronous updates and step permits of the parameter plane."""

from __future__ import annotations

import pytest

from edl_master.core.identifiers import Token
from edl_master.core.parameters.modes import Reduction, Sync
from edl_master.core.parameters.permits import PermitGranted, PermitPending, PermitRefused
from edl_master.core.parameters.push import PushOutcome

from .planes import ONE, THREE, TWO, A, B, C, push, small_plane, values_of


class TestSync:
    def test_a_version_needs_all_of_its_gradients(self) -> None:
        plane = small_plane(Sync(2))
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        result = push(plane, A, 1, 0, [-1, 0])
        assert (result.outcome, result.new_version, result.version) == (
            PushOutcome.APPLIED,
            False,
            0,
        )
        assert values_of(plane).tolist() == [0, 0, 0]
        result = push(plane, B, 2, 0, [0, -1])
        assert (result.new_version, result.version) == (True, 1)
        assert values_of(plane).tolist() == [0.5, 0.5, 0]

    def test_gradients_and_state_deltas_weigh_as_many_records_as_they_come_from(self) -> None:
        plane = small_plane(Sync(2))
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [-1, -1], records=3, state=[4])
        push(plane, A, 1, 1, [-5, 0], records=1, state=[8])
        assert values_of(plane).tolist() == [(3 + 5) / 4, 3 / 4, (3 * 4 + 8) / 4]

    def test_with_a_summed_loss_gradients_add_up_and_state_deltas_are_still_averaged(self) -> None:
        plane = small_plane(Sync(2, Reduction.SUM))
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [-1, -1], records=3, state=[4])
        push(plane, A, 1, 1, [-5, 0], records=1, state=[8])
        assert values_of(plane).tolist() == [6, 1, 5]

    @pytest.mark.parametrize("first", [None, [4]])
    def test_no_state_delta_is_no_change_of_state(self, first: list[float] | None) -> None:
        """That holds in a version that follows another, too, whose sums must not come back."""
        plane = small_plane(Sync(2))
        plane.grant(A, ONE)
        for minibatch in range(2):
            push(plane, A, 1, minibatch, [0, 0], state=[100])
        before = values_of(plane)[2]
        second = [4] if first is None else None
        push(plane, A, 1, 2, [0, 0], state=first, records=2)
        push(plane, A, 1, 3, [0, 0], state=second, records=2)
        assert values_of(plane)[2] == before + 2

    def test_a_gradient_of_another_version_is_stale_and_may_be_computed_again(self) -> None:
        plane = small_plane(Sync(1))
        plane.grant(A, ONE)
        push(plane, A, 1, 0, [0, 0])
        result = push(plane, A, 1, 1, [-1, 0], base=0)
        assert (result.outcome, result.staleness) == (PushOutcome.STALE, 1)
        assert push(plane, A, 1, 1, [-1, 0], base=1).outcome is PushOutcome.APPLIED

    def test_flush_makes_a_version_of_what_is_there(self) -> None:
        plane = small_plane(Sync(3))
        plane.grant(A, ONE)
        assert not plane.flush(), "there is nothing to apply"
        push(plane, A, 1, 0, [-1, 0], records=4)
        push(plane, A, 1, 1, [-4, 0], records=2)
        generation = plane.generation
        assert plane.flush()
        assert plane.generation != generation
        assert (plane.version, values_of(plane)[0]) == (1, 2)
        assert not plane.flush()
        push(plane, A, 1, 2, [-3, 0])
        assert plane.flush()
        assert values_of(plane)[0] == 5, "nothing of the last version is left"

    def test_flush_waits_for_gradients_that_are_being_computed(self) -> None:
        plane = small_plane(Sync(3))
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        push(plane, A, 1, 0, [-1, 0])
        plane.request_permit(B, TWO)
        assert not plane.flush()
        assert push(plane, B, 2, 0, [-1, 0]).outcome is PushOutcome.APPLIED
        assert plane.flush()


class TestStepPermits:
    def test_there_are_as_many_as_gradients_are_missing(self) -> None:
        plane = small_plane(Sync(2))
        for number, task in enumerate((A, B, C), start=1):
            plane.grant(task, Token(number))
        assert plane.request_permit(A, ONE) == PermitGranted(plane.version)
        assert plane.request_permit(B, TWO) == PermitGranted(plane.version)
        assert plane.request_permit(C, THREE) == PermitPending(plane.generation)
        assert plane.request_permit(A, ONE) == PermitGranted(plane.version), "it has one already"

    def test_one_worker_fills_several_of_a_version_one_after_the_other(self) -> None:
        plane = small_plane(Sync(3))
        plane.grant(A, ONE)
        for minibatch in range(3):
            assert plane.request_permit(A, ONE) == PermitGranted(0)
            push(plane, A, 1, minibatch, [-1, 0])
        assert plane.version == 1

    def test_a_new_version_ends_the_waiting(self) -> None:
        plane = small_plane(Sync(1))
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        plane.request_permit(A, ONE)
        waiting = plane.request_permit(B, TWO)
        assert waiting == PermitPending(plane.generation)
        push(plane, A, 1, 0, [0, 0])
        assert plane.generation != waiting.generation
        assert plane.request_permit(B, TWO) == PermitGranted(plane.version)

    @pytest.mark.parametrize("how", ["revoke", "close", "grant to another"])
    def test_the_permit_of_an_ended_lease_goes_to_the_next(self, how: str) -> None:
        plane = small_plane(Sync(1))
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        plane.request_permit(A, ONE)
        waiting = plane.request_permit(B, TWO)
        match how:
            case "revoke":
                assert plane.revoke(A, ONE)
            case "close":
                plane.close(A)
            case _:
                plane.grant(A, THREE)
        assert isinstance(waiting, PermitPending)
        assert plane.generation != waiting.generation
        assert plane.request_permit(B, TWO) == PermitGranted(plane.version)

    @pytest.mark.parametrize("how", ["revoke", "close", "grant to another"])
    def test_a_caller_that_waits_for_a_lease_learns_of_its_end(self, how: str) -> None:
        """Though no step permit became free, for it held none."""
        plane = small_plane(Sync(1))
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        plane.request_permit(A, ONE)
        waiting = plane.request_permit(B, TWO)
        assert isinstance(waiting, PermitPending)
        match how:
            case "revoke":
                assert not plane.revoke(B, TWO)
            case "close":
                plane.close(B)
            case _:
                plane.grant(B, THREE)
        assert plane.generation != waiting.generation
        assert plane.request_permit(B, TWO) == PermitRefused()

    def test_only_the_holder_of_the_lease_can_ask_for_a_permit(self) -> None:
        plane = small_plane(Sync(1))
        plane.grant(A, ONE)
        plane.grant(A, TWO)
        assert plane.request_permit(A, ONE) == PermitRefused()
        plane.request_permit(A, TWO)
        assert not plane.revoke(A, ONE)
        assert plane.ledger.permits_held == 1

    def test_a_push_without_a_permit_takes_a_free_one(self) -> None:
        plane = small_plane(Sync(2))
        plane.grant(A, ONE)
        assert push(plane, A, 1, 0, [-1, 0]).outcome is PushOutcome.APPLIED

    def test_a_push_without_a_permit_never_makes_another_gradient_useless(self) -> None:
        plane = small_plane(Sync(1))
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        plane.request_permit(A, ONE)
        assert push(plane, B, 2, 0, [-1, 0]).outcome is PushOutcome.STALE
        assert push(plane, A, 1, 0, [-1, 0]).outcome is PushOutcome.APPLIED

    def test_a_late_repeat_of_a_push_does_not_cost_the_lease_its_next_slot(self) -> None:
        plane = small_plane(Sync(2))
        plane.grant(A, ONE)
        plane.grant(B, TWO)
        push(plane, A, 1, 0, [0, 0])
        plane.request_permit(A, ONE)
        assert push(plane, A, 1, 0, [0, 0]).outcome is PushOutcome.ALREADY_APPLIED
        assert plane.request_permit(B, TWO) == PermitPending(plane.generation)
