"""The steps that a member keeps for the next master."""

from __future__ import annotations

from unittest import mock

from edl_worker.core import kept_steps
from edl_worker.core.kept_steps import KeptSteps
from edl_worker.core.member_progress import MemberProgress
from edl_worker.core.replicas import (
    Claim,
    Generation,
    Holding,
    Note,
    OriginSpan,
    ReplicaStep,
    Report,
    ReportAnswer,
    VersionOrigin,
)
from edl_worker.core.tasks import Lease, TaskKey, TaskType

START, FIRST, SECOND = VersionOrigin("one", 0), VersionOrigin("one", 1), VersionOrigin("one", 2)
LEASE = Lease(TaskKey(TaskType.TRAINING, 0, 0), token=7, skip_minibatches=0)
NOTES = [Note(Claim(LEASE.ref, 0, records=8, loss=0.5), stops=False)]


def kept_until(version: int) -> KeptSteps:
    """Return the steps from version 3 on; from version 6 on they are of a second generation."""
    kept = KeptSteps()
    kept.begin(3, START)
    for made in range(4, version + 1):
        kept.add(ReplicaStep(made, {}), FIRST if made < 6 else SECOND)
    return kept


def spans(kept: KeptSteps) -> list[tuple[int, VersionOrigin]]:
    assert kept.holding is not None
    return [(span.version, span.origin) for span in kept.holding.origins]


def test_a_holding_names_the_origins_of_all_versions_that_are_kept() -> None:
    assert kept_until(7).holding == Holding(
        7, (OriginSpan(3, START), OriginSpan(4, FIRST), OriginSpan(6, SECOND))
    )
    assert [step.version for step in kept_until(7).tell(5)] == [6, 7]
    assert KeptSteps().holding is None


def test_what_is_saved_is_forgotten() -> None:
    kept = kept_until(7)
    kept.forget_until(5)
    assert spans(kept) == [(5, FIRST), (6, SECOND)]
    assert [step.version for step in kept.tell(0)] == [6, 7]
    for version in (4, 9):  # it has been forgotten already, and is not there yet
        kept.forget_until(version)
        assert spans(kept) == [(5, FIRST), (6, SECOND)]


def test_only_so_many_claims_are_kept() -> None:
    kept = kept_until(3)
    step = Claim(LEASE.ref, 0, records=8, loss=0.5)
    with mock.patch.object(kept_steps, "MAX_CLAIMS", 4):
        for made in range(4, 9):
            kept.add(ReplicaStep(made, {0: step, 1: step}), FIRST)
    assert [step.version for step in kept.tell(0)] == [7, 8]
    assert spans(kept) == [(6, FIRST)]


# --- as a member ------------------------------------------------------------------------------


def member_with_a_step(*, finish: bool = False) -> MemberProgress:
    progress = MemberProgress(0)
    progress.enter(Generation(1, (0,), version=3, incarnation="one", origin=START))
    progress.on_values()
    progress.on_step(NOTES)
    if finish:
        progress.enter(Generation(2, (0,), 4, sources=(0,), finish=True, incarnation="one"))
        progress.on_values()
    return progress


def test_a_member_goes_on_with_its_values_under_another_master() -> None:
    progress = member_with_a_step()
    progress.forget()
    assert progress.version is None, "they are of no version of the present master"
    assert spans(progress.kept) == [(3, START), (4, FIRST)]

    progress.enter(Generation(1, (0,), 4, sources=(0,), incarnation="two", origin=FIRST))
    progress.on_values()
    progress.on_step(NOTES)
    assert spans(progress.kept) == [(3, START), (4, FIRST), (5, VersionOrigin("two", 1))]


def test_a_member_that_gets_other_values_keeps_the_steps_from_these_on() -> None:
    progress = member_with_a_step()
    progress.forget()
    progress.enter(Generation(1, (1, 0), 9, sources=(1,), incarnation="two", origin=SECOND))
    assert spans(progress.kept) == [(3, START), (4, FIRST)], "it has not got them yet"

    progress.on_values()
    assert spans(progress.kept) == [(9, SECOND)]


def test_a_member_that_was_given_up_keeps_nothing() -> None:
    progress = member_with_a_step()
    report = progress.take_report()
    assert isinstance(report, Report)
    progress.on_answer(report, ReportAnswer(3, lost=True))

    progress.forget()
    assert progress.kept.holding is None


def test_reports_say_what_is_saved() -> None:
    progress = member_with_a_step()
    report = progress.take_report()
    assert isinstance(report, Report)
    progress.on_answer(report, ReportAnswer(3, saved=None))
    assert len(spans(progress.kept)) == 2
    progress.on_answer(report, ReportAnswer(4, saved=4))
    assert spans(progress.kept) == [(4, FIRST)]


def test_values_that_an_optimizer_ends_with_are_no_result_of_steps() -> None:
    assert member_with_a_step(finish=True).kept.holding is None
