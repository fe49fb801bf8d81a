"""Jobs from start to end through the command, with a real process as their master."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Edl, eventually, stand_in_for_check
from running_jobs import alive, master_pid, running_job, status

from edl.adapters.job_service_client import CALL_S
from edl_runtime.local import job_directory, supervision

RESULT = {
    "job", "state", "records_trained", "steps", "epochs", "metrics", "seconds", "records_per_s",
    "dashboard_url", "output",
}  # fmt: skip


# --- a job that succeeds -------------------------------------------------------------------


def test_a_job_s_result_is_one_object(tidy: Edl) -> None:
    done = tidy(*tidy.job("--num-epochs", "2", "-o", "json"))
    result = done.json
    assert set(result) == RESULT
    assert result["state"] == "SUCCEEDED"
    assert result["records_trained"] == 2000
    assert (result["epochs"], result["steps"]) == (2, 200)
    assert result["metrics"] == {"accuracy": 0.9712}
    assert result["output"] == str(tidy.place / "out")
    assert result["seconds"] > 0
    assert result["job"].startswith("mine-")
    assert result["dashboard_url"] in done.err
    assert "2,000 records" in done.err
    assert "EvaluationEnded" in done.err


def test_a_person_gets_the_results_on_stdout_and_the_rest_on_stderr(tidy: Edl) -> None:
    done = tidy(*tidy.job())
    assert done.out.split() == ["accuracy", "0.9712", "output", str(tidy.place / "out")]
    assert "\033" not in done.err + done.out
    assert len(done.err.splitlines()) < 12


def test_quiet_says_nothing_but_the_result(tidy: Edl) -> None:
    done = tidy(*tidy.job("-q", "-o", "name", "--name", "silent"))
    assert (done.out, done.err) == ("silent\n", "")


def test_yaml_and_wide(tidy: Edl) -> None:
    import yaml

    assert set(yaml.safe_load(tidy(*tidy.job("-o", "yaml")).out)) == RESULT
    (tidy.place / "out").rmdir()
    assert "goodput" in tidy(*tidy.job("-o", "wide")).out


def test_the_master_hears_that_the_result_was_read(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "read"))
    assert (tidy.job_dir("read") / "acknowledged").exists()


def test_underscores_and_equals_signs_are_as_good_as_dashes(tidy: Edl) -> None:
    tidy(
        "train",
        f"--model_zoo={tidy.place}/zoo",
        *("--model_def", "mine", "--data", str(tidy.place / "data")),
        *(f"--output={tidy.place}/out", "--num_workers", "2", "--no_shuffle", "--name", "old_"[:3]),
    )
    spec = json.loads((tidy.job_dir("old") / "spec.json").read_text())
    assert spec["workers"] == {"min": 2, "max": 2}
    assert "shuffle" not in spec["training"]


def test_relative_places_become_absolute(tidy: Edl) -> None:
    tidy(
        *("train", "--model-zoo", "zoo", "--model-def", "mine", "--data", "data/*.recordio"),
        *("--output", "out", "--name", "near"),
    )
    spec = json.loads((tidy.job_dir("near") / "spec.json").read_text())
    assert spec["model"]["model_zoo"] == str(tidy.place / "zoo")
    assert spec["data"] == [str(tidy.place / "data/*.recordio")]
    assert spec["output"] == str(tidy.place / "out")
    assert spec["job_dir"] == str(tidy.job_dir("near"))


def test_evaluate_and_predict(tidy: Edl) -> None:
    from edl_proto.v1 import model_pb2

    model = tidy.place / "model"
    model.mkdir()
    content = model_pb2.TrainedModel(model_def="mine").SerializeToString()
    (model / "trained_model.pb").write_bytes(content)
    data = ("--trained-model", str(model), "--data", str(tidy.place / "data"))
    evaluated = tidy("evaluate", *data, "-o", "json").json
    assert evaluated["metrics"] == {"accuracy": 0.9712}
    assert "predictions" not in evaluated
    tidy.part = "endless"
    tidy("predict", *data, "--output", str(tidy.place / "out"), "--detach", "--name", "p")
    tidy("stop", "p")
    tidy.part = "quick"
    assert tidy("resume", "p", "-o", "json").json["predictions"] == 1000


def test_a_dry_run_prints_the_job_and_starts_nothing(edl: Edl) -> None:
    edl.extra["EDL_PYTHON"] = stand_in_for_check(edl.place)
    done = edl(*edl.job("--dry-run", "--num-workers", "1:3", "-o", "json"))
    assert done.json["workers"] == {"min": 1, "max": 3}
    assert done.json["type"] == "TRAIN"
    assert not edl.home.exists()
    assert not (edl.place / "out").exists()


# --- jobs that go wrong --------------------------------------------------------------------


def test_a_failed_job_says_what_where_and_what_to_do_on_one_screen(tidy: Edl) -> None:
    tidy.part = "fail"
    done = tidy.run(*tidy.job("-o", "json"))
    assert done.code == 4
    assert done.json["state"] == "FAILED"
    assert done.json["error"] == {
        "code": "MODEL_CONTRACT",
        "what": "the model file has no loss",
        "where": "zoo/mine.py",
        "remedy": f"Write def loss(labels, predictions). edl resume {done.json['job']} starts it"
        " again.",
    }
    assert "model file breaks the contract: the model file has no loss" in done.err
    assert "where: zoo/mine.py" in done.err
    assert "what to do: Write def loss" in done.err
    assert "line 99" in done.err
    assert "line 1\n" not in done.err
    assert len(done.err.splitlines()) < 40


def test_an_error_of_the_master_before_it_listens_is_reported(tidy: Edl) -> None:
    tidy.part = "early"
    done = tidy.run(*tidy.job("-o", "json"))
    assert done.code == 3
    assert "chunk 3 is damaged" in done.err
    assert "a.recordio, offset 40" in done.err
    assert done.json["error"]["code"] == "DATA_DAMAGED"


def test_a_master_that_crashes_at_once_shows_the_end_of_its_log(tidy: Edl) -> None:
    tidy.part = "crash"
    done = tidy.run(*tidy.job())
    assert done.code == 1
    assert "exit code 1 before it listened" in done.err
    assert "the fake job crashes as its scenario says" in done.err
    assert "master.log" in done.err


def test_a_master_that_cannot_be_started(tidy: Edl) -> None:
    tidy.extra["EDL_MASTER_COMMAND"] = "/nowhere/python -m edl_master"
    done = tidy.run(*tidy.job())
    assert done.code == 1
    assert "/nowhere/python" in done.err
    assert "edl doctor" in done.err


def test_a_master_that_is_not_installed(tidy: Edl) -> None:
    tidy.extra["EDL_MASTER_COMMAND"] = f"{sys.executable} -m edl_master_that_is_missing"
    done = tidy.run(*tidy.job())
    assert done.code == 1
    assert "edl_master_that_is_missing" in done.err


def test_a_master_that_is_killed_is_started_again(tidy: Edl) -> None:
    tidy.part = "endless"
    running = tidy.start(*tidy.job("--name", "back", "-o", "json"))
    eventually(lambda: running_job(tidy, "back"), "the job runs")
    for _ in range(3):
        before = master_pid(tidy, "back")
        os.kill(before, signal.SIGKILL)
        eventually(lambda: master_pid(tidy, "back") != before, "another master")  # noqa: B023  (called at once)
        eventually(lambda: running_job(tidy, "back"), "the job runs on")
    tidy("stop", "back")
    out, err = running.communicate(timeout=200)
    assert json.loads(out)["state"] == "CANCELLED", err


def test_a_master_that_is_killed_before_it_listens_is_waited_for(tidy: Edl) -> None:
    tidy.part = "unlucky"
    done = tidy(*tidy.job("--name", "unlucky", "--detach"))
    assert (tidy.job_dir("unlucky") / "starts").read_text() == "xxx"
    assert "unlucky" in done.out + done.err
    eventually(lambda: running_job(tidy, "unlucky"), "the job runs")
    tidy("stop", "unlucky")


def supervisor(edl: Edl, name: str) -> int | None:
    return supervision.supervisor_pid(edl.job_dir(name))


def test_a_killed_supervisor_is_replaced_by_the_next_command(tidy: Edl) -> None:
    tidy.begin("watched")
    first = eventually(lambda: supervisor(tidy, "watched"), "a supervisor")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: supervisor(tidy, "watched") is None, "it is gone")
    # Its stand-in for a master does not miss it; so both are gone now, unnoticed.
    before = master_pid(tidy, "watched")
    os.kill(before, signal.SIGKILL)
    # What the dead master wrote last, or what the next one writes first.
    assert status(tidy, "watched")["state"] in ("RUNNING", "STARTING")
    eventually(lambda: master_pid(tidy, "watched") != before, "another master")
    eventually(lambda: running_job(tidy, "watched"), "the job runs on")
    second = eventually(lambda: supervisor(tidy, "watched"), "another supervisor")
    assert second != first
    tidy("stop", "watched")


def test_there_is_never_more_than_one_supervisor(tidy: Edl) -> None:
    tidy.begin("single")
    only = eventually(lambda: supervisor(tidy, "single"), "a supervisor")
    job_dir = tidy.job_dir("single")
    command = [sys.executable, "-m", "edl.adapters.local.supervisor", "--job-dir", str(job_dir)]
    crowd = [subprocess.Popen(command) for _ in range(4)]
    assert [each.wait(200) for each in crowd] == [0] * 4
    assert supervisor(tidy, "single") == only
    tidy("stop", "single")


def test_a_master_that_cannot_live_is_given_up_and_leaves_no_worker(tidy: Edl) -> None:
    tidy.part = "dying"
    running = tidy.start(*tidy.job("--name", "lost", "--num-workers", "2", "-o", "json"))
    eventually(lambda: running_job(tidy, "lost"), "the job runs")
    pods = [json.loads(p.read_text()) for p in (tidy.job_dir("lost") / "instances").iterdir()]
    assert all(Path(f"/proc/{pod['pid']}").exists() for pod in pods)
    os.kill(master_pid(tidy, "lost"), signal.SIGKILL)
    out, err = running.communicate(timeout=200)
    assert running.returncode == 1, err
    assert "ended by itself 3 times in a row" in err
    assert "crashes as its scenario says" in err
    assert json.loads(out)["error"]["code"] == "MASTER_LOST"
    assert len(pods) == 2
    assert not any(alive(pod["pid"]) for pod in pods)
    assert tidy("list", "-o", "json").json[0]["state"] == "FAILED"


def test_a_job_without_a_supervisor_is_lost_with_its_master(tidy: Edl) -> None:
    """Jobs of earlier versions have no supervisor."""
    tidy.begin("alone", "--num-workers", "2")
    eventually(lambda: supervisor(tidy, "alone"), "a supervisor")
    (tidy.job_dir("alone") / job_directory.SUPERVISOR).unlink()
    eventually(lambda: supervisor(tidy, "alone") is None, "its supervisor ends")
    os.kill(master_pid(tidy, "alone"), signal.SIGKILL)
    done = tidy.run("wait", "alone", "-o", "json")
    assert done.code == 1
    assert "the master of job" in done.err
    assert "2 of its workers were ended" in done.err


# --- names ---------------------------------------------------------------------------------


def test_the_same_job_submitted_twice_is_followed_and_not_started_twice(tidy: Edl) -> None:
    tidy.begin("once")
    first = master_pid(tidy, "once")
    again = tidy.start(*tidy.job("--name", "once"))
    assert again.stderr is not None
    assert "runs already" in again.stderr.readline()
    tidy("stop", "once")
    again.communicate(timeout=200)
    assert again.returncode == 8
    assert master_pid(tidy, "once") == first


def test_another_job_of_the_same_name_is_refused_while_the_first_runs(tidy: Edl) -> None:
    tidy.begin("taken")
    done = tidy.run(*tidy.job("--name", "taken", "--num-epochs", "7"))
    assert done.code == 5
    assert "training.num_epochs" in done.err
    assert "edl status taken" in done.err
    tidy("stop", "taken")


def test_a_name_stays_taken_after_the_end_until_it_is_deleted(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "kept"))
    (tidy.place / "out").rmdir()
    done = tidy.run(*tidy.job("--name", "kept"))
    assert done.code == 5
    assert "edl delete kept" in done.err
    assert "--name" in done.err
    assert tidy("delete", "kept", "--yes").out == "kept deleted\n"
    tidy(*tidy.job("--name", "kept"))


def test_two_submitters_of_one_name_at_one_moment_start_one_job(tidy: Edl) -> None:
    tidy.part = "endless"
    both = [tidy.start(*tidy.job("--name", "race", "--detach")) for _ in range(2)]
    for child in both:
        _, err = child.communicate(timeout=200)
        assert child.returncode == 0, err
    masters = [
        pid
        for pid in tidy.processes()
        if b"\0-m\0edl_testing.fake_job\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(masters) == 1
    tidy("stop", "race")


# --- away and back -------------------------------------------------------------------------


def test_detach_returns_and_the_job_goes_on(tidy: Edl) -> None:
    tidy.part = "endless"
    done = tidy(*tidy.job("--name", "away", "--detach", "-o", "json"))
    assert done.json["job"] == "away"
    assert done.json["dashboard_url"].startswith("http://127.0.0.1:")
    assert done.json["state"] in ("STARTING", "RUNNING")
    assert "edl logs -f away" in done.err
    assert alive(master_pid(tidy, "away"))
    assert os.getsid(master_pid(tidy, "away")) == master_pid(tidy, "away")
    tidy("stop", "away")


def test_ctrl_c_leaves_the_job_and_says_how_to_come_back(tidy: Edl) -> None:
    tidy.part = "endless"
    running = tidy.start(*tidy.job("--name", "goes-on", "-o", "json"))
    eventually(lambda: running_job(tidy, "goes-on"), "the job runs")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=200)
    assert running.returncode == 130
    assert json.loads(out)["state"] == "RUNNING"
    for word in ("continues", "edl status goes-on", "edl logs -f goes-on", "edl stop goes-on"):
        assert word in err
    assert "Traceback" not in err
    assert status(tidy, "goes-on")["state"] == "RUNNING"
    tidy("stop", "goes-on")


def test_a_timeout_stops_the_job(tidy: Edl) -> None:
    tidy.part = "endless"
    done = tidy.run(*tidy.job("--name", "slow", "--timeout", "1s", "-o", "json"))
    assert done.code == 8
    assert done.json["error"]["code"] == "TIMED_OUT"
    assert done.json["state"] == "CANCELLED"
    assert "1.0 s" in done.err


def test_stop_ends_a_job_and_a_second_stop_is_harmless(tidy: Edl) -> None:
    tidy.begin("ended")
    done = tidy("stop", "ended", "-o", "json")
    assert done.json["state"] == "CANCELLED"
    assert done.json["error"]["code"] == "STOPPED"
    assert tidy("stop", "ended").out == "ended is over already: cancelled\n"


def test_stop_waits_for_a_master_that_is_busy(tidy: Edl) -> None:
    tidy.begin("busy")
    master = master_pid(tidy, "busy")
    os.kill(master, signal.SIGSTOP)
    stopping = tidy.start("stop", "busy", "-o", "json")
    with pytest.raises(subprocess.TimeoutExpired):
        stopping.wait(CALL_S + 3)
    os.kill(master, signal.SIGCONT)
    out, err = stopping.communicate(timeout=200)
    assert stopping.returncode == 0, err
    assert json.loads(out)["state"] == "CANCELLED"


def test_stop_now_ends_a_job_whose_master_does_not_answer(tidy: Edl) -> None:
    tidy.begin("frozen", "--num-workers", "2")
    os.kill(master_pid(tidy, "frozen"), signal.SIGSTOP)
    done = tidy("stop", "frozen", "--now", "-o", "json")
    assert done.json["state"] == "CANCELLED"
    assert "job frozen was ended at once" in done.json["error"]["what"]
    assert done.json["error"]["remedy"] == "edl resume frozen starts it again."


def test_wait_ends_with_the_code_of_the_job(tidy: Edl) -> None:
    tidy.begin("waited")
    waiting = tidy.start("wait", "waited", "-o", "json")
    tidy("stop", "waited")
    out, err = waiting.communicate(timeout=200)
    assert waiting.returncode == 8, err
    assert json.loads(out)["state"] == "CANCELLED"


def test_wait_for_several_and_for_too_long(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "first"))
    tidy.begin("second", "--output", str(tidy.place / "out2"))
    done = tidy.run("wait", "first", "second", "--timeout", "300ms")
    assert done.code == 8
    assert "second" in done.err
    assert status(tidy, "second")["state"] == "RUNNING"
    tidy("stop", "second")
    done = tidy.run("wait", "first", "second", "-o", "json")
    assert [job["state"] for job in done.json] == ["SUCCEEDED", "CANCELLED"]
    assert done.code == 8
