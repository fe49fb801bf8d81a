"""Commands that look at jobs, change them and remove them, with real processes as masters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import pytest
from conftest import Edl, eventually
from running_jobs import alive, master_pid, running_job, status

from edl_runtime.identity.page_key import PageKey
from edl_runtime.monitoring.log_lines import LogEntry, as_json, as_text

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


@pytest.mark.parametrize("spec", ["{", None])
def test_a_damaged_job_does_not_hide_the_others(tidy: Edl, spec: str | None) -> None:
    tidy(*tidy.job("--name", "good"))
    (tidy.home / "jobs" / "bad").mkdir()
    if spec is not None:
        (tidy.home / "jobs" / "bad" / "spec.json").write_text(spec)
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
    done = tidy.run("logs", "unknown", *options)
    assert done.code == 2
    assert word in done.err


def test_a_trace_replaces_only_an_earlier_one_and_says_where_the_time_went(tidy: Edl) -> None:
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
    path.write_bytes(path.read_bytes().replace(b'"X"', b'"Y"'))
    tidy("trace", "timed")
    assert b'"Y"' not in path.read_bytes(), "a trace of the same job is replaced"
    for existing in (b"", b"notes", path.read_bytes().replace(b"timed", b"other")):
        (tidy.place / "mine.json").write_bytes(existing)
        refused = tidy.run("trace", "timed", "--output", "mine.json", "-o", "json")
        assert refused.code == 5
        assert refused.json["error"]["code"] == "OUTPUT_EXISTS"
        assert (tidy.place / "mine.json").read_bytes() == existing
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


def test_the_learning_rate_of_a_running_job_is_set(tidy: Edl) -> None:
    tidy.begin("slower")
    for wrong, words in (
        ("batch-size=3", "edl scale changes the workers"),
        ("learning-rate=fast", "'fast' is not a learning rate"),
        ("learning-rate=-1", "'-1' is not a learning rate"),
    ):
        done = tidy.run("set", "slower", wrong)
        assert done.code == 2, str(done)
        assert words in done.err
        assert "edl set slower learning-rate=0.0001" in done.err
    assert status(tidy, "slower")["learning_rate"] is None
    assert "rate  " not in tidy("status", "slower").out
    assert tidy("set", "slower", "learning-rate=0.002").out == "slower: learning rate 0.002\n"
    assert status(tidy, "slower")["learning_rate"] == 0.002
    assert "rate    0.002" in tidy("status", "slower").out
    assert "LearningRateSet" in tidy("events", "slower").out
    tidy("stop", "slower")
    assert tidy.run("set", "slower", "learning-rate=1").code == 6


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
        ("status", "unknown"), ("logs", "unknown"), ("events", "unknown"), ("wait", "unknown"),
        ("scale", "unknown", "--workers", "2"), ("stop", "unknown"),
        ("delete", "unknown", "--yes"),
        ("set", "unknown", "learning-rate=1"),
        ("top", "unknown"), ("trace", "unknown"), ("dashboard", "unknown"),
        ("status", "../../etc"),
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
    assert (exported.json["records_trained"], exported.json["epochs"]) == (0, 0)
    warning = "nothing was trained yet: these are the initial values"
    assert f"  warning: {warning}" in exported.err.splitlines()
    assert exported.json["warnings"] == [warning]
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


@pytest.mark.parametrize("options", [(), ("--now",)])
def test_to_stop_a_job_that_was_not_started_loses_nothing(
    tidy: Edl, options: tuple[str, ...]
) -> None:
    tidy(*tidy.job("--name", "mine"))
    eventually(lambda: not tidy.processes(), "the supervisor has written its last report")
    for file in tidy.job_dir("mine").glob("*.json"):
        if file.name != "spec.json":
            file.unlink()
    assert "not started" in tidy("list").out
    done = tidy("stop", "mine", *options)
    assert done.out.strip() == "mine was not started"
    assert done.err.strip() == "edl resume mine starts it."


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


def test_what_follows_a_success_is_said(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "well"))
    out = str(tidy.place / "out")
    resumed = tidy.run("resume", "well")
    assert resumed.code == 6
    assert "edl resume well --num-epochs N" in resumed.err
    assert f"--init-from {out}" in resumed.err
    by_job = tidy.run("evaluate", "--trained-model", "well", "--data", str(tidy.place / "data"))
    assert by_job.code == 4
    assert "well is the name of a job" in by_job.err
    assert f"--trained-model {out}" in by_job.err


def test_a_path_that_ends_like_the_name_of_a_job_is_a_path(tidy: Edl) -> None:
    tidy(*tidy.job("--name", "well"))
    data = ("--data", str(tidy.place / "data"))
    by_path = tidy.run("evaluate", "--trained-model", "models/well", *data)
    assert by_path.code == 4
    assert "the trained model does not exist" in by_path.err
    assert "name of a job" not in by_path.err
