"""Processes get other environments, and the first one is found again."""

from __future__ import annotations

from edl_runtime.local.process_environment import CHANGED, change, order_sets, restore

SUBMISSION = {"PATH": "/bin", "TMPDIR": "/mine"}


def test_the_first_environment_is_found_again_through_several_changes() -> None:
    master = change(SUBMISSION, {"EDL_JOB_DIR": "/jobs/a", "TMPDIR": "/jobs/a/tmp"})
    worker = change(master, {"TMPDIR": "/jobs/a/tmp/0"})
    assert worker["TMPDIR"] == "/jobs/a/tmp/0"
    assert worker["EDL_JOB_DIR"] == "/jobs/a"
    assert restore(worker) == restore(master) == restore(SUBMISSION) == SUBMISSION


def test_what_cannot_be_read_changes_nothing() -> None:
    for damaged in ("", "[", "[1]"):
        assert restore({**SUBMISSION, CHANGED: damaged}) == SUBMISSION


def test_texts_have_the_same_hashes_in_all_processes() -> None:
    for unset in ({}, {"PYTHONHASHSEED": ""}, {"PYTHONHASHSEED": "random"}):
        assert order_sets(unset) == {"PYTHONHASHSEED": "0"}
    assert order_sets({"PYTHONHASHSEED": "7"}) == {}
