"""What a member knows about its values and its tasks, whatever order things happen in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl_worker.core.member_progress import MemberProgress
from edl_worker.core.replicas import Claim, Generation, Note, Report, ReportAnswer
from edl_worker.core.tasks import Lease, OutOfOrderError, TaskKey, TaskLostError, TaskType

FIRST = Generation(1, (0, 1), version=0, next_token=5)
LEASE = Lease(TaskKey(TaskType.TRAINING, 1, 0), token=7, skip_minibatches=3)


def claim(minibatch: int) -> Claim:
    return Claim(LEASE.ref, minibatch, records=8, loss=0.5)


def begin(generation: Generation = FIRST) -> MemberProgress:
    """Return the progress of worker 0 with the values of a generation."""
    progress = MemberProgress(0)
    progress.enter(generation)
    progress.on_values()
    return progress


def report_of(progress: MemberProgress) -> Report:
    report = progress.take_report()
    assert report is not None
    return report


def test_a_task_goes_on_after_the_steps_of_this_worker() -> None:
    progress = begin()
    assert progress.find_position(LEASE, 3) == 3
    progress.on_step([Note(claim(3), stops=False), Note(None, stops=False)])
    assert progress.find_position(LEASE, 3) == 4
    progress.on_step([Note(None, stops=False), Note(claim(0), stops=False)])
    assert progress.find_position(LEASE, 4) == 4, "the step of another"


def test_a_new_generation_says_which_minibatches_are_in_its_values() -> None:
    progress = begin()
    progress.enter(Generation(2, (1, 0), 1, sources=(1,), counts={7: 4}, next_token=9))
    assert progress.find_position(LEASE, 3) == 4, "a step whose end this worker has not seen"


def test_a_lease_that_a_generation_does_not_name_is_lost() -> None:
    progress = begin(replace(FIRST, next_token=8))
    with pytest.raises(TaskLostError):
        progress.find_position(LEASE, 3)


def test_minibatches_that_were_dropped_cannot_be_trained_again() -> None:
    with pytest.raises(OutOfOrderError):
        begin().find_position(LEASE, 4)


def test_reports_have_all_steps_that_do_not_count() -> None:
    progress = begin()
    for minibatch in (3, 4, 5):
        progress.on_step([Note(claim(minibatch), stops=False), Note(None, stops=False)])
    report = report_of(progress)
    assert (report.version, [step.version for step in report.steps]) == (3, [1, 2, 3])
    progress.on_answer(report, ReportAnswer(counted=2))
    report = report_of(progress)
    assert [step.version for step in report.steps] == [3]
    assert report.steps[0].claims == {0: claim(5)}


def test_a_member_reports_what_others_have_added_if_it_is_asked() -> None:
    progress = begin()
    progress.on_step([Note(claim(3), stops=False), Note(claim(0), stops=False)])
    progress.stop()
    report = report_of(progress)
    assert (report.steps[0].claims, report.complete) == ({0: claim(3)}, False)
    progress.on_answer(report, ReportAnswer(0, ended=True, all_wanted=True))
    report = report_of(progress)
    assert (report.steps[0].claims, report.complete) == ({0: claim(3), 1: claim(0)}, True)
    progress.enter(replace(FIRST, number=2, version=1, sources=(0, 1)))
    assert not report_of(progress).complete


def test_a_member_tells_the_others_that_the_generation_has_ended() -> None:
    progress = begin()
    assert not progress.make_note(claim(3)).stops
    progress.on_answer(report_of(progress), ReportAnswer(0, ended=True))
    assert progress.make_note(claim(3)).stops
    assert progress.is_member, "until the step in which all know it"


def test_an_answer_about_an_earlier_generation_changes_nothing() -> None:
    progress = begin()
    report = report_of(progress)
    progress.enter(replace(FIRST, number=2, sources=(0, 1)))
    progress.on_answer(report, ReportAnswer(0, ended=True, lost=True))
    assert not progress.ended
    assert progress.version == 0


def test_old_values_are_kept_until_the_new_ones_are_here() -> None:
    progress = begin()
    progress.on_step([Note(claim(3), stops=False), Note(None, stops=False)])
    progress.stop()
    progress.enter(Generation(2, (1, 0), 2, sources=(1,)))
    assert report_of(progress).version == 1, "they may be the farthest if the others die now"
    progress.on_values()
    assert report_of(progress).version == 2


def test_values_of_one_that_was_given_up_are_of_no_version() -> None:
    progress = begin()
    progress.on_answer(report_of(progress), ReportAnswer(0, ended=True, lost=True))
    assert progress.version is None
    assert progress.take_report() is None
    progress.enter(Generation(3, (1, 0), 0, sources=(1,)))
    assert report_of(progress).version is None, "another step may have made this version"


def test_one_that_lost_an_answer_still_has_its_values() -> None:
    progress = begin()
    progress.stop()
    progress.on_answer(report_of(progress), ReportAnswer(0, ended=True, lost=True))
    progress.enter(Generation(2, (0, 1), 0, sources=(0, 1)))
    assert progress.version == 0


def test_nothing_is_left_of_a_former_master() -> None:
    progress = begin()
    progress.on_step([Note(claim(3), stops=False), Note(None, stops=False)])
    progress.forget()
    assert progress.version is None
    assert progress.take_report() is None
    assert progress.number == 0
