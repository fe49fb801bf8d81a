"""Jobs from start to end through the command, with a real process as their master."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from conftest import Edl, eventually, stand_in_for_check

from edl.adapters.job_service_client import CALL_S
from edl_proto.identity.page_key import PageKey
from edl_proto.local import supervision
from edl_proto.monitoring.log_lines import LogEntry, as_json, as_text

RESULT = {
    "job", "state", "records_trained", "steps", "epochs", "metrics", "seconds", "records_per_s",
    "dashboard_url", "output",
}  # fmt: skip


def status(edl: Edl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = edl("status", name, "-o", "json").json
    return found


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
    predicted = tidy("predict", *data, "--output", str(tidy.place / "out"), "-o", "json").json
    assert predicted["predictions"] == 1000
    assert predicted["job"].startswith("predict-model-")


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
    tidy.extra["EDL_MASTER_COMMAND"] = f"{sys.executable} -m edl_master_that_nobody_has"
    done = tidy.run(*tidy.job())
    assert done.code == 1
    assert "edl_master_that_nobody_has" in done.err


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
    # Its stand-in for a master does not miss it; so both are gone now, and nobody notices.
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
    crowd = [
        subprocess.Popen([sys.executable, "-m", "edl.supervisor", "--job-dir", str(job_dir)])
        for _ in range(4)
    ]
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


def test_a_job_that_nobody_watches_is_lost_with_its_master(tidy: Edl) -> None:
    """As with jobs of earlier versions."""
    tidy.begin("alone", "--num-workers", "2")
    eventually(lambda: supervisor(tidy, "alone"), "a supervisor")
    supervision.release(tidy.job_dir("alone"))
    eventually(lambda: supervisor(tidy, "alone") is None, "its supervisor ends")
    os.kill(master_pid(tidy, "alone"), signal.SIGKILL)
    done = tidy.run("wait", "alone", "-o", "json")
    assert done.code == 1
    assert "the master of job" in done.err
    assert "2 of its workers were ended" in done.err


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return stat[0] != b"Z"


def running_job(edl: Edl, name: str) -> bool:
    return edl.run("status", name, "-o", "json").out.find('"RUNNING"') > 0


def master_pid(edl: Edl, name: str) -> int:
    pid: int = json.loads((edl.job_dir(name) / "master.json").read_text())["pid"]
    return pid


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
        if b"edl_testing.fake_job" in Path(f"/proc/{pid}/cmdline").read_bytes()
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
    for word in ("goes on", "edl status goes-on", "edl logs -f goes-on", "edl stop goes-on"):
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
    assert done.json["state"] == "LOST"


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


# --- watching ------------------------------------------------------------------------------


def test_status_is_the_whole_job_for_programs(tidy: Edl) -> None:
    tidy.begin("seen", "--num-workers", "2")
    eventually(lambda: running_job(tidy, "seen"), "the job runs")
    look = status(tidy, "seen")
    assert [worker["id"] for worker in look["workers"]] == [0, 1]
    assert all(alive(worker["pid"]) for worker in look["workers"])
    assert look["progress"]["records_total"] == 1000
    assert look["preemptions"] == 0
    text = tidy("status", "seen").out
    assert "WORKER" in text
    assert "of 1,000 records" in text
    assert tidy("top", "seen").out.startswith("seen  running")
    tidy("stop", "seen")
    assert "stopped" in tidy("status", "seen").out
    assert status(tidy, "seen")["state"] == "CANCELLED"


def test_list_shows_jobs_newest_first(tidy: Edl) -> None:
    assert "no jobs" in tidy("list").err
    assert tidy("list", "-o", "json").json == []
    tidy(*tidy.job("--name", "older"))
    tidy.begin("newer", "--output", str(tidy.place / "out2"))
    assert tidy("list", "-o", "name").out.split() == ["newer", "older"]
    assert tidy("list", "--running", "-o", "name").out.split() == ["newer"]
    table = tidy("list").out.splitlines()
    assert table[0].split()[0] == "NAME"
    assert table[1].split()[0] == "newer"
    tidy("stop", "newer")


def test_a_damaged_job_does_not_hide_the_others(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "good"))
    (tidy.home / "jobs" / "bad").mkdir()
    (tidy.home / "jobs" / "bad" / "spec.json").write_text("{")
    done = tidy("list", "-o", "name")
    assert sorted(done.out.split()) == ["bad", "good"]
    assert "bad" in done.err
    table = {line.split()[0]: line.split()[2] for line in tidy("list").out.splitlines()[1:]}
    assert table == {"bad": "unreadable", "good": "succeeded"}
    facts = {job["job"]: job for job in tidy("list", "-o", "json").json}
    assert facts["bad"]["state"] == "UNREADABLE"
    assert facts["bad"]["error"]["code"] == "DATA_DAMAGED"
    assert tidy("list", "--running", "-o", "name").out == ""
    for command in ("status", "top"):
        done = tidy.run(command, "bad")
        assert done.code == 3
        assert "edl delete bad --yes" in done.err
    tidy("delete", "bad", "--yes")
    assert tidy("list", "-o", "name").out.split() == ["good"]


def test_scale_reaches_the_master(tidy: Edl) -> None:
    tidy.begin("wide")
    assert tidy("scale", "wide", "--workers", "1:3").out == "wide: 1:3 workers\n"
    assert status(tidy, "wide")["workers_wanted"] == {"min": 1, "max": 3}
    os.kill(master_pid(tidy, "wide"), signal.SIGKILL)
    assert tidy("scale", "wide", "--workers", "2:3").out == "wide: 2:3 workers\n", "it waits"
    done = tidy.run("scale", "wide", "--workers", "3:1")
    assert done.code == 2
    assert "3:1" in done.err
    tidy("stop", "wide")
    done = tidy.run("scale", "wide", "--workers", "2", "-o", "json")
    assert done.code == 6
    assert done.json["error"]["code"] == "JOB_OVER"


def test_logs_of_all_processes_of_one_and_the_last_lines(tidy: Edl) -> None:
    tidy.begin("logged", "--num-workers", "2")
    eventually(lambda: "worker 1 here" in tidy("logs", "logged").out, "the workers have written")
    assert "[master] fake job listens" in tidy("logs", "logged").out
    assert tidy("logs", "logged", "--worker", "0").out == "worker 0 here\n"
    assert tidy("logs", "logged", "--master").out == "fake job listens\n"
    assert tidy("logs", "logged", "--master", "--tail", "0").out == ""
    done = tidy.run("logs", "logged", "--worker", "7")
    assert done.code == 6
    assert "0, 1" in done.err
    tidy("stop", "logged")


def test_logs_are_shown_for_people_and_as_objects(tidy: Edl) -> None:
    tidy.begin("told-apart", "--num-workers", "2")
    tidy("stop", "told-apart")
    assert tidy.run("wait", "told-apart").code == 8
    logs = tidy.job_dir("told-apart") / "logs"
    facts = {"job": "told-apart", "role": "worker", "worker": 1, "task": "training/1/2"}
    failed = LogEntry(3661.5, "ERROR", "a", "no \x1b[2J", facts, "Traceback\nValueError: why")
    (logs / "master.log").write_text(f"{as_text(LogEntry(3600.0, 'INFO', 'b', 'begun'))}\n")
    (logs / "worker-0.log").write_text("printed\n")
    (logs / "worker-1.log").write_text(f"{as_json(failed)}\n")
    assert tidy("logs", "told-apart").out.splitlines() == [
        "[worker 0] printed",
        "[master] 01:00:00.000 begun",
        "[worker 1] 01:01:01.500 error: no \\x1b[2J",
        "Traceback",
        "ValueError: why",
    ]
    found = tidy("logs", "told-apart", "--json").out.splitlines()
    objects = [json.loads(line) for line in found]
    assert objects[0] == {
        "message": "printed", "job": "told-apart", "role": "worker", "worker": 0
    }  # fmt: skip
    assert objects[1]["role"] == "master", "also of a line that does not say so"
    assert objects[2] == json.loads(as_json(failed))
    shown = tidy("logs", "told-apart", "--color", "always", "--level", "error").out
    assert shown.startswith("\x1b[34m[worker 1]\x1b[0m ")
    assert "\x1b[2J" not in shown
    assert "\x1b" not in tidy("logs", "told-apart").out
    since = tidy("logs", "told-apart", "--since", "1970-01-01T01:00:30Z", "--role", "worker").out
    assert since.startswith("[worker 1]")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--since", "noon"), "write 15m"),
        (("--master", "--worker", "1"), "cannot be combined"),
        (("--role", "server", "--master"), "cannot be combined"),
    ],
)
def test_options_of_logs_that_make_no_sense(tidy: Edl, options: tuple[str, ...], word: str) -> None:
    done = tidy.run("logs", "nobody", *options)
    assert done.code == 2
    assert word in done.err


def test_a_trace_is_written_once_and_says_where_the_time_went(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "timed"))
    shown = tidy("trace", "timed")
    path = tidy.place / "timed.trace.json"
    first, head, row = shown.out.splitlines()
    assert first.startswith("timed.trace.json: 1 task of 1 worker;")
    assert head.split()[:2] == ["worker", "compute"]
    assert row.split()[:2] == ["0", "100"]
    kinds = [event["ph"] for event in json.loads(path.read_bytes())["traceEvents"]]
    assert kinds.count("X") == 1
    assert "i" in kinds
    again = tidy.run("trace", "timed", "-o", "json")
    assert again.code == 5
    assert again.json["error"]["code"] == "OUTPUT_EXISTS"
    other = tidy("trace", "timed", "--output", "new/other.json", "-o", "json").json
    assert other["workers"] == [{"worker": 0, "phases": {"compute": 1.0}}]
    assert (tidy.place / "new" / "other.json").read_bytes() == path.read_bytes()


def test_following_logs_and_events_ends_with_the_job(tidy: Edl) -> None:
    tidy.begin("told")
    logs, events = (
        tidy.start("logs", "-f", "told"),
        tidy.start("events", "-f", "told", "-o", "json"),
    )
    assert logs.stdout is not None
    assert "[master]" in logs.stdout.readline()
    with (tidy.job_dir("told") / "logs" / "master.log").open("a") as log:
        log.write("later\n")
    assert any("later" in line for line in iter(logs.stdout.readline, ""))
    tidy("stop", "told")
    for child in (logs, events):
        out, err = child.communicate(timeout=200)
        assert child.returncode == 0, err
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds == ["JobStarted", "JobRunning", "JobStopped"]
    assert "JobStopped" in tidy("events", "told").out


def test_the_page_s_url_while_the_job_runs_and_after(tidy: Edl) -> None:
    tidy.begin("page")
    url = tidy("status", "page", "-o", "json").json["dashboard_url"]
    links = [tidy("dashboard", "page").out.strip() for _ in range(2)]
    links += [line.split()[-1] for line in tidy("status", "page").out.splitlines() if url in line]
    key = PageKey.read(tidy.job_dir("page") / "page")
    assert key is not None
    for link in links:
        assert link.startswith(f"{url}?token=")
        assert key.is_fresh_link(link.partition("=")[2], time.time())
    assert len(set(links)) == 3
    # A browser gets the link in a file: other users see the arguments of its process.
    browser = tidy.place / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tidy.place}/opened\n')
    browser.chmod(0o755)
    shown = tidy("dashboard", "page", "--open", env={**tidy.env, "BROWSER": str(browser)})
    opened = urllib.parse.urlsplit((tidy.place / "opened").read_text().strip())
    assert (opened.scheme, opened.query) == ("file", "")
    page = Path(urllib.parse.unquote(opened.path))
    assert shown.out.strip() in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    tidy("stop", "page")
    eventually(lambda: not alive(master_pid(tidy, "page")), "the master has ended")
    child = tidy.start("dashboard", "page", "-o", "json")
    assert child.stdout is not None
    assert child.stderr is not None
    later = json.loads("".join(iter(child.stdout.readline, "}\n")) + "}")
    assert key.is_fresh_link(later["dashboard_url"].partition("/?token=")[2], time.time())
    assert "page cancelled; Ctrl-C closes the page" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=200)
    assert child.returncode == 0, err


def test_delete_spares_running_jobs_and_asks(tidy: Edl) -> None:
    tidy.begin("dear")
    done = tidy.run("delete", "dear", "--yes")
    assert done.code == 5
    assert "edl stop dear" in done.err
    done = tidy.run("delete", "dear", "--stop")
    assert done.code == 2
    assert "--yes" in done.err
    assert status(tidy, "dear")["state"] == "RUNNING"
    assert tidy("delete", "dear", "--stop", "--yes", "-o", "json").json["deleted"]
    assert tidy("list", "-o", "json").json == []
    assert not tidy.job_dir("dear").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("status", "nobody"), ("logs", "nobody"), ("events", "nobody"), ("wait", "nobody"),
        ("scale", "nobody", "--workers", "2"), ("stop", "nobody"), ("delete", "nobody", "--yes"),
        ("top", "nobody"), ("trace", "nobody"), ("dashboard", "nobody"), ("status", "../../etc"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_job_that_is_not_there(edl: Edl, args: tuple[str, ...]) -> None:
    done = edl.run(*args)
    assert done.code == 6, str(done)
    assert "error: there is no job" in done.err


def test_a_name_nearly_right_has_a_suggestion(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "mnist-cnn"))
    assert "Did you mean mnist-cnn?" in tidy.run("status", "mnist-cn").err


def test_a_reader_that_leaves_is_no_error(edl: Edl) -> None:
    for number in range(50):
        edl_dir = edl.job_dir(f"job-{number:02d}")
        edl_dir.mkdir(parents=True)
        (edl_dir / "spec.json").write_text('{"name": "x"}')
    child = subprocess.Popen(
        f"{sys.executable} -m edl list | head -1",
        shell=True,
        env=edl.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = child.communicate(timeout=200)
    assert out.startswith("NAME")
    assert "Traceback" not in err


# --- after the end ------------------------------------------------------------------------------


def test_a_stopped_job_is_exported_and_resumed(tidy: Edl) -> None:
    tidy.begin("mine")
    tidy.part = "quick"
    exported = tidy("stop", "mine", "--export", "-o", "json")
    assert (exported.json["job"], exported.json["state"]) == ("mine", "SUCCEEDED")
    assert exported.json["output"] == str(tidy.place / "out")
    assert "the model of mine" in exported.err
    assert tidy("list", "-o", "name").out.split() == ["mine"], "the short job is gone"
    stopped = tidy("stop", "mine")
    assert "is over already: cancelled" in stopped.out
    assert "edl resume mine" in stopped.err
    refused = tidy.run(*tidy.job("--name", "mine", "--output", str(tidy.place / "other")))
    assert refused.code == 5
    assert "edl resume mine" in refused.err
    (tidy.place / "out").rmdir()
    resumed = tidy("resume", "mine")
    assert "mine resumed, page: http" in resumed.err
    assert "succeeded" in resumed.err
    again = tidy.run("resume", "mine")
    assert again.code == 6
    assert "has succeeded" in again.err


def test_a_large_zoo_has_to_be_accepted(tidy: Edl) -> None:
    zoo = tidy.place / "zoo"
    with (zoo / "weights.bin").open("wb") as file:
        file.truncate(20_000_000)
    (zoo / ".edlignore").write_text("!weights.bin\n")
    refused = tidy.run(*tidy.job("--name", "large"))
    assert refused.code == 10
    assert "20.0 MB" in refused.err
    assert "--yes" in refused.err
    assert "model zoo: 3 files, 20.0 MB" in tidy(*tidy.job("--name", "large", "--yes")).err
