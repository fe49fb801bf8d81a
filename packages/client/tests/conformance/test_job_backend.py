"""The conformance suite of the port ``JobBackend``; every adapter passes it.

A new adapter adds a ``Harness`` to ``open_harness``. The master is fake, so the suite
tests backends and not training.
"""

from __future__ import annotations

import json
import pkgutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import pytest
from backend_harness import Harness, Killed, die, end, open_harness, over, running
from conftest import Edl, eventually

from edl.adapters.local.job_identities import master_peer
from edl.adapters.local.processes import local_processes
from edl.core.job_log import LogChoice
from edl.core.job_status import JobState
from edl.core.options import Verb
from edl.core.options.value_types import WorkerRange
from edl.core.platforms import PLATFORMS
from edl.ports.job_backend import JobBackend
from edl_docker.backend import local_containers
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.transport import channels
from edl_runtime.identity.page_key import PageKey
from edl_runtime.local import job_directory, output_reservation
from edl_runtime.monitoring.log_lines import LogEntry, as_json, as_text


@pytest.fixture(params=["processes", "containers", "plug-in"])
def harness(
    request: pytest.FixtureRequest, tidy: Edl, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Harness]:
    with open_harness(request.param, tidy, monkeypatch) as opened:
        yield opened


@pytest.fixture
def backend(harness: Harness) -> Iterator[JobBackend]:
    made = harness.make()
    yield made
    made.close()


# --- submission ----------------------------------------------------------------------------


def test_a_submitted_job_runs_and_is_known(harness: Harness, backend: JobBackend) -> None:
    assert backend.submit(harness.job("first"))
    eventually(lambda: running(backend, "first"), "the job runs")
    assert [entry.name for entry in backend.list()] == ["first"]
    snapshot = backend.status("first")
    assert (snapshot.status.job, snapshot.status.verb) == ("first", Verb.TRAIN)
    assert snapshot.dashboard_url.startswith("http://")
    link = snapshot.page_link()
    key = PageKey.read(harness.edl.job_dir("first") / job_directory.PAGE)
    assert key is not None
    assert link.startswith(f"{snapshot.dashboard_url}?token=")
    assert key.is_fresh_link(link.partition("=")[2], time.time())
    assert snapshot.details()["state"] == "RUNNING"
    end(backend, "first")


def test_the_description_is_that_of_the_running_job(harness: Harness, backend: JobBackend) -> None:
    job = harness.job("described", num_epochs="3")
    planned = dict(backend.placement.describe(job))
    assert backend.list() == []
    backend.submit(job)
    found = dict(backend.status("described").description())
    for each in (planned, found):
        each.pop("submitted_at")
    assert found == planned
    assert found["training"]["num_epochs"] == 3
    end(backend, "described")


def test_what_a_job_needs_is_checked_before_anything_starts(
    harness: Harness, backend: JobBackend
) -> None:
    backend.placement.check(harness.job("fits"))
    with pytest.raises(EdlError) as caught:
        backend.placement.check(harness.job("lacks", data=str(harness.edl.place / "none")))
    assert caught.value.code == ErrorCode.DATA_NOT_FOUND
    assert backend.list() == []


def test_the_platform_of_each_backend_is_registered(backend: JobBackend) -> None:
    made = pkgutil.resolve_name(PLATFORMS[backend.platform].backend)()
    assert made.platform == backend.platform


def test_one_name_is_one_job_for_all_submitters(harness: Harness) -> None:
    job = harness.job("race")
    backends = [harness.make() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        created = list(pool.map(lambda each: each.submit(job), backends))
    assert sorted(created) == [False, False, True]
    assert not backends[0].submit(job)
    assert len(backends[0].list()) == 1
    end(backends[0], "race")
    for each in backends:
        each.close()


def test_a_caller_that_ends_before_it_starts_a_job_leaves_one_that_a_look_starts(
    harness: Harness, backend: JobBackend
) -> None:
    """After a power cut, the job's directory may be complete without a supervisor having run."""
    with harness.monkeypatch.context() as cut:
        cut.setattr("edl.adapters.local.jobs.LocalLauncher", die)
        with pytest.raises(Killed):
            backend.submit(harness.job("made"))
    assert not harness.edl.processes()
    looking = harness.make()
    assert looking.status("made").status.state is JobState.STARTING
    looking.close()
    listens = harness.edl.job_dir("made") / job_directory.MASTER
    eventually(listens.exists, "a master, without another look")
    eventually(lambda: running(backend, "made"), "the job runs")
    end(backend, "made")


@pytest.mark.parametrize(
    ("part", "code"), [("crash", ErrorCode.MASTER_LOST), ("early", ErrorCode.DATA_DAMAGED)]
)
def test_a_job_that_cannot_start_says_why_and_leaves_no_process(
    harness: Harness, backend: JobBackend, part: str, code: int
) -> None:
    harness.play(part)
    with pytest.raises(EdlError) as caught:
        backend.submit(harness.job("broken"))
    assert caught.value.code == code
    eventually(lambda: not harness.edl.processes(), "all processes have ended")


def test_jobs_of_other_backends_are_not_its_jobs(harness: Harness, backend: JobBackend) -> None:
    backend.submit(harness.job("mine"))
    other = local_containers() if backend.platform == "processes" else local_processes()
    assert other.list() == []
    with pytest.raises(EdlError):
        other.status("mine")
    end(backend, "mine")


# --- a running job -------------------------------------------------------------------------


def test_another_process_can_do_everything(harness: Harness, backend: JobBackend) -> None:
    backend.submit(harness.job("shared", num_workers="1:4"))
    backend.close()
    other = harness.make()
    eventually(lambda: running(other, "shared"), "the job runs")
    assert other.change("shared", WorkerRange(2, 3)) == WorkerRange(2, 3)
    eventually(lambda: "Scaled" in {each.kind for each in other.events("shared")}, "the event")
    other.stop("shared", "by the test")
    eventually(lambda: over(other, "shared"), "the job is over")
    end_status = other.finalize("shared", other.status("shared").status)
    assert end_status.state is JobState.CANCELLED
    assert end_status.failure is not None
    assert end_status.failure.code == "STOPPED"
    other.close()


def test_its_master_can_be_reached(harness: Harness, backend: JobBackend) -> None:
    backend.submit(harness.job("reached"))
    peer = master_peer(harness.edl.job_dir("reached"))
    with channels.connect(backend.reach("reached"), peer) as channel:
        grpc.channel_ready_future(channel).result(timeout=200)
    end(backend, "reached")
    eventually(lambda: backend.reach("reached") == "", "no answer")


def test_a_killed_master_is_restarted(harness: Harness, backend: JobBackend) -> None:
    backend.submit(harness.job("revived"))
    eventually(lambda: running(backend, "revived"), "the job runs")
    before = backend.reach("revived")
    harness.kill_master("revived")
    eventually(lambda: backend.reach("revived") not in ("", before), "another master answers")
    eventually(lambda: running(backend, "revived"), "the job runs on")
    end(backend, "revived")


def test_events_are_numbered_and_stay(harness: Harness, backend: JobBackend) -> None:
    backend.submit(harness.job("told"))
    eventually(lambda: running(backend, "told"), "the job runs")
    end(backend, "told")
    found = backend.events("told")
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert found[0].kind == "JobStarted"
    assert list(backend.events("told", found[0].number)) == list(found[1:])


def test_the_timeline_has_what_goes_on_and_stays(harness: Harness, backend: JobBackend) -> None:
    backend.submit(harness.job("timed"))
    eventually(lambda: running(backend, "timed"), "the job runs")
    goes_on, *before = reversed(backend.timelines.read("timed"))
    assert (goes_on.task, goes_on.outcome) == ("training/1/1", "unfinished")
    end(backend, "timed")
    eventually(lambda: backend.reach("timed") == "", "no answer")
    stays = backend.timelines.read("timed")
    assert list(reversed(stays)) == before
    assert [each.outcome for each in stays] == ["done", ""]
    assert stays[1].phases == {"compute": 1.0}


def test_logs_stay_after_the_end(harness: Harness, backend: JobBackend) -> None:
    backend.submit(harness.job("logged", num_workers="2"))
    everything = backend.logs("logged", LogChoice())
    seen: list[str] = []

    def poll() -> bool:
        seen.extend(f"{line.source}: {line.text}" for line in everything.poll())
        return len(seen) >= 3

    eventually(poll, "a line of each process")
    assert set(seen) == {
        "master: fake job listens",
        "worker 0: worker 0 here",
        "worker 1: worker 1 here",
    }
    end(backend, "logged")
    one = backend.logs("logged", LogChoice(worker=1, tail=1))
    assert list(one.workers()) == [0, 1]
    assert [line.text for line in one.poll(final=True)] == ["worker 1 here"]
    masters = backend.logs("logged", LogChoice("master")).poll(final=True)
    assert [line.source for line in masters] == ["master"]


def test_logs_of_all_roles_come_by_their_times_in_either_form(
    harness: Harness, backend: JobBackend
) -> None:
    backend.submit(harness.job("ordered"))
    end(backend, "ordered")
    logs = harness.edl.job_dir("ordered") / job_directory.LOGS
    said = [LogEntry(float(second), "INFO", "a", f"line {second}") for second in range(6)]
    (logs / "master.log").write_text(f"{as_text(said[0])}\n{as_json(said[3])}\n")
    (logs / "worker-0.log").write_text(f"{as_json(said[1])}\nprinted\n{as_text(said[4])}\n")
    (logs / "server-1.log").write_text(f"{as_text(said[2])}\n{as_text(said[5])}")
    found = list(backend.logs("ordered", LogChoice()).poll(final=True))
    shown = [line.entry.message if line.entry else line.text for line in found]
    assert shown == ["line 0", "line 1", "printed", *(f"line {second}" for second in range(2, 6))]
    assert [line.source for line in found if line.entry] == [
        "master",
        "worker 0",
        "server 1",
    ] * 2
    servers = backend.logs("ordered", LogChoice("server", tail=1)).poll(final=True)
    assert [line.entry for line in servers] == [said[5]]


# --- the end -------------------------------------------------------------------------------


def test_a_finished_job_succeeded_and_cannot_be_scaled(
    harness: Harness, backend: JobBackend
) -> None:
    harness.play("quick")
    backend.submit(harness.job("done"))
    eventually(lambda: over(backend, "done"), "the job is over")
    status = backend.finalize("done", backend.status("done").status)
    assert (status.state, status.failure) == (JobState.SUCCEEDED, None)
    eventually(lambda: not harness.edl.processes(), "all processes have ended")
    with pytest.raises(EdlError) as caught:
        backend.change("done", WorkerRange(1, 1))
    assert caught.value.code == ErrorCode.JOB_OVER
    backend.stop("done", "harmless")
    assert backend.status("done", ask=False).status.state is JobState.SUCCEEDED


def test_stop_now_ends_everything_and_nothing_restarts_the_job(
    harness: Harness, backend: JobBackend
) -> None:
    output = harness.edl.place / "results" / "model"
    backend.submit(harness.job("killed", num_workers="2", output=str(output)))
    eventually(lambda: running(backend, "killed"), "the job runs")
    reservation = output_reservation.path_of(str(output))
    assert reservation is not None
    with reservation.open("w") as held:  # as a master has it
        output_reservation.write(held.fileno(), harness.edl.job_dir("killed"))
    backend.stop("killed", "at once", now=True)
    assert not reservation.exists()
    eventually(lambda: over(backend, "killed"), "the job is over")
    assert backend.status("killed").status.state is JobState.CANCELLED
    status = backend.finalize("killed", backend.status("killed").status)
    assert status.state is JobState.CANCELLED
    assert status.failure is not None
    assert status.failure.code == "STOPPED"
    eventually(lambda: not harness.edl.processes(), "all processes have ended")


def test_delete_removes_state_and_processes_but_not_the_output(
    harness: Harness, backend: JobBackend
) -> None:
    harness.play("quick")
    job = replace(harness.job("deleted"), keep_page=600.0)
    backend.submit(job)
    eventually(lambda: over(backend, "deleted"), "the job is over")
    assert backend.status("deleted").keep_page_s == 600.0
    backend.delete("deleted")
    assert backend.list() == []
    assert (harness.edl.place / "results" / "out").exists()
    eventually(lambda: not harness.edl.processes(), "all processes have ended")
    assert backend.submit(replace(harness.job("deleted"), output=""))
    eventually(lambda: over(backend, "deleted"), "the next job of this name is over")
    backend.finalize("deleted", backend.status("deleted").status)


def test_a_job_with_a_damaged_description_can_be_deleted(
    harness: Harness, backend: JobBackend
) -> None:
    backend.submit(harness.job("damaged", num_workers="2"))
    eventually(lambda: running(backend, "damaged"), "the job runs")
    (harness.edl.job_dir("damaged") / job_directory.SPEC).write_text("{")
    assert [entry.name for entry in backend.list()] == ["damaged"]
    assert backend.reach("damaged")
    with pytest.raises(EdlError) as caught:
        backend.status("damaged")
    assert caught.value.code == ErrorCode.DATA_DAMAGED
    backend.delete("damaged")
    assert backend.list() == []
    eventually(lambda: not harness.edl.processes(), "all processes have ended")


# --- what a job has left -------------------------------------------------------------------


def test_a_job_that_was_stopped_failed_or_lost_is_resumed_until_it_succeeds(
    harness: Harness, backend: JobBackend
) -> None:
    harness.play("fail")
    backend.submit(harness.job("again"))
    eventually(lambda: over(backend, "again"), "the job has failed")
    failed = backend.finalize("again", backend.status("again").status)
    assert failed.failure is not None
    assert failed.failure.remedy.endswith("edl resume again starts it again.")
    harness.play("endless")
    callers = [harness.make() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        resumed = list(pool.map(lambda each: each.continuation.resume("again"), callers))
    assert sorted(resumed) == [False, False, True]
    eventually(lambda: running(backend, "again"), "the job runs")
    backend.stop("again", "at once", now=True)
    eventually(lambda: over(backend, "again"), "the job is over")
    requests = harness.edl.job_dir("again") / job_directory.REQUESTS
    requests.write_text('{"stop": {"reason": "lunch"}, "workers": {"min": 1, "max": 2}}')
    harness.play("quick")
    assert backend.continuation.resume("again")
    assert json.loads(requests.read_text()) == {"workers": {"min": 1, "max": 2}}
    eventually(lambda: over(backend, "again"), "the job is over")
    last = backend.finalize("again", backend.status("again").status)
    assert (last.state, last.failure) == (JobState.SUCCEEDED, None)
    with pytest.raises(EdlError) as caught:
        backend.continuation.resume("again")
    assert caught.value.code == ErrorCode.JOB_OVER
    for each in callers:
        each.close()


def test_a_caller_that_is_killed_while_it_resumes_a_job_leaves_one_that_can_be_resumed(
    harness: Harness, backend: JobBackend
) -> None:
    backend.submit(harness.job("halfway"))
    end(backend, "halfway")
    requests = harness.edl.job_dir("halfway") / job_directory.REQUESTS
    requests.write_text('{"stop": {"reason": "lunch"}}')
    steps = ("end_job", "_reopen", "replace_file", "supervisor_command", "LocalLauncher")
    for step in steps:
        with harness.monkeypatch.context() as killed:
            killed.setattr(f"edl.adapters.local.continuation.{step}", die)
            with pytest.raises(Killed):
                backend.continuation.resume("halfway")
        assert over(harness.make(), "halfway") == (step != "LocalLauncher"), step
    # The last one had resumed it: a look at the job starts its supervisor.
    eventually(lambda: running(backend, "halfway"), "the job runs")
    assert not backend.continuation.resume("halfway")
    end(backend, "halfway")


def test_another_job_exports_the_model_of_a_running_one(
    harness: Harness, backend: JobBackend
) -> None:
    backend.submit(harness.job("model", num_workers="2", validation_data=harness.data))
    eventually(lambda: running(backend, "model"), "the job runs")
    short = backend.continuation.export("model", str(harness.edl.place / "results" / "so-far"))
    spec = dict(backend.status(short).description())
    assert spec["export"]["job"] == "model"
    assert spec["export"]["snapshots"].endswith("/model/snapshots")
    assert (spec["workers"], spec["validation_data"]) == ({"min": 1, "max": 1}, [])
    assert spec["output"].endswith("/so-far")
    with pytest.raises(EdlError) as caught:
        backend.continuation.export("model")
    assert caught.value.code == ErrorCode.JOB_EXISTS
    end(backend, short)
    harness.play("quick")
    again = backend.continuation.export("model", overwrite=True)
    assert again == short, "instead of the one that is over"
    assert dict(backend.status(again).description())["export"]["overwrite"]
    eventually(lambda: over(backend, short), "the export is over")
    backend.finalize(short, backend.status(short).status)
    assert running(backend, "model")
    end(backend, "model")


@pytest.mark.parametrize("name", ["unknown", "../escape", ""])
def test_an_unknown_name_is_job_not_found(harness: Harness, backend: JobBackend, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: backend.status(name),
        lambda: backend.logs(name, LogChoice()),
        lambda: backend.events(name),
        lambda: backend.timelines.read(name),
        lambda: backend.change(name, WorkerRange(1, 1)),
        lambda: backend.stop(name, "why"),
        lambda: backend.stop(name, "why", now=True),
        lambda: backend.delete(name),
        lambda: backend.continuation.resume(name),
        lambda: backend.continuation.export(name),
        lambda: backend.reach(name),
    ]
    for call in calls:
        with pytest.raises(EdlError) as caught:
            call()
        assert caught.value.code == ErrorCode.JOB_NOT_FOUND
