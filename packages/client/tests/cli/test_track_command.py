"""``--tracker``: what is wrong with it is said before the job; one that is away is not."""

from __future__ import annotations

from conftest import Attempt, Edl, assert_told


def test_an_unknown_tracker_is_refused(attempt: Attempt) -> None:
    assert_told(attempt(tracker="notebook"), 2, "--tracker", "mlflow")
    assert_told(attempt("track", "digits", "--tracker", "notebook"), 2, "mlflow")


def test_a_job_that_is_not_there_matters_more_than_its_tracker(attempt: Attempt) -> None:
    done = attempt("track", "nojob")
    assert_told(done, 6, "there is no job named nojob")
    assert "MLFLOW" not in done.err


def test_a_job_cannot_be_tracked_without_an_address(example: Edl) -> None:
    example(*example.job("--name", "digits"))
    done = example.run("track", "digits", "--tracker", "lines")
    assert done.code == 2, str(done)
    assert "EXAMPLE_LINES is not set" in done.err


def test_a_tracker_that_is_away_changes_nothing_for_the_job(example: Edl) -> None:
    example.extra["EXAMPLE_LINES"] = str(example.place / "no" / "such" / "folder")
    done = example(*example.job("--tracker", "lines", "--name", "digits", "-o", "json"))
    assert done.json["state"] == "SUCCEEDED"
    assert done.err.count("the tracker does not answer") == 1
    assert "edl track digits sends the rest" in done.err


def test_a_detached_job_says_how_it_is_tracked(example: Edl) -> None:
    example.extra["EXAMPLE_LINES"] = str(example.place / "lines")
    done = example(*example.job("--tracker", "lines", "--name", "digits", "--detach"))
    assert "edl track digits" in done.err
    example("wait", "digits")
