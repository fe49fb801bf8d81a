"""``--tracker``: what is wrong with it is said before the job; a server that is away is not."""

from __future__ import annotations

import socket

from conftest import Attempt, Edl, told


def test_a_tracker_without_an_address_is_refused_before_the_job(attempt: Attempt) -> None:
    told(attempt(tracker="mlflow"), 2, "MLFLOW_TRACKING_URI is not set")


def test_an_unknown_tracker_is_refused(attempt: Attempt) -> None:
    told(attempt(tracker="notebook"), 2, "--tracker", "mlflow")
    told(attempt("track", "digits", "--tracker", "notebook"), 2, "mlflow")


def test_a_job_that_is_not_there_matters_more_than_its_tracker(attempt: Attempt) -> None:
    done = attempt("track", "nojob")
    told(done, 6, "there is no job named nojob")
    assert "MLFLOW" not in done.err


def test_a_job_cannot_be_tracked_without_an_address(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "digits"))
    done = tidy.run("track", "digits")
    assert done.code == 2, str(done)
    assert "MLFLOW_TRACKING_URI is not set" in done.err


def test_a_server_that_is_away_changes_nothing_for_the_job(tidy: Edl) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        tidy.extra["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = tidy(*tidy.job("--tracker", "mlflow", "--name", "digits", "-o", "json"))
    assert done.json["state"] == "SUCCEEDED"
    assert done.err.count("the tracker does not answer") == 1
    assert "edl track digits sends the rest" in done.err


def test_a_detached_job_says_how_it_is_tracked(tidy: Edl) -> None:
    tidy.extra["MLFLOW_TRACKING_URI"] = "http://127.0.0.1:1"
    done = tidy(*tidy.job("--tracker", "mlflow", "--name", "digits", "--detach"))
    assert "edl track digits" in done.err
    tidy("wait", "digits")
