"""The record of a job: what it holds, its size, and who writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_api import FakeApi, outage

from edl_kubernetes.cluster import objects
from edl_kubernetes.master import api_retry
from edl_kubernetes.master.job_record import JobRecord, collect
from edl_master.adapters.job_directory import to_json
from edl_proto.v1 import error_pb2, job_pb2

RECORD = "/api/v1/namespaces/team/configmaps/edl-job"
OWNER = {"kind": "Job", "name": "edl-job", "uid": "u"}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_retry, "_FIRST_S", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-0.log").write_text("first\nlast\n")
    (tmp_path / "events.jsonl").write_text('{"number": 1}\n{"number": 2}\n{"torn')
    status = job_pb2.JobStatus(name="job", state=job_pb2.FAILED)
    (tmp_path / "status.json").write_text(to_json(status))
    return tmp_path


def record(api: FakeApi, folder: Path, term: int = 1) -> JobRecord:
    return JobRecord(api, "team", "job", OWNER, term, folder)


def test_it_has_the_status_whole_events_and_the_ends_of_logs(folder: Path) -> None:
    api = FakeApi()
    record(api, folder).write()
    made = api.objects[RECORD]
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert made["metadata"]["labels"][objects.LABEL_JOB] == "job"
    data = made["data"]
    assert json.loads(data[objects.STATUS_KEY])["state"] == "FAILED"
    assert data[objects.EVENTS_KEY] == '{"number": 1}\n{"number": 2}\n'
    assert json.loads(data[objects.LOGS_KEY]) == {"worker-0": "first\nlast\n"}


def test_it_is_written_only_when_something_is_new(folder: Path) -> None:
    api = FakeApi()
    written = record(api, folder)
    written.write()
    calls = len(api.calls)
    written.write()
    assert len(api.calls) == calls
    (folder / "logs" / "worker-1.log").write_text("new\n")
    written.write()
    assert "worker-1" in api.objects[RECORD]["data"][objects.LOGS_KEY]


def test_the_last_one_is_written_however_long_the_api_server_is_away(folder: Path) -> None:
    api = FakeApi()
    api.before = outage(15)
    record(api, folder).complete()
    assert RECORD in api.objects


def test_a_master_does_not_replace_the_record_of_a_newer_one(folder: Path) -> None:
    api = FakeApi()
    record(api, folder, term=2).write()
    before = api.objects[RECORD]
    (folder / "events.jsonl").write_text('{"number": 9}\n')
    record(api, folder, term=1).write()
    assert api.objects[RECORD] == before
    record(api, folder, term=3).write()
    assert '{"number": 9}' in api.objects[RECORD]["data"][objects.EVENTS_KEY]


def _long_error() -> error_pb2.Error:
    return error_pb2.Error(what="boom", detail="d" * 300_000)


def test_it_fits_into_an_object_however_much_there_is(folder: Path) -> None:
    worst = '\\\x1b[0m"\x01é漢\U0001f600' * 300 + "\n"
    for number in range(200):
        (folder / "logs" / f"worker-{number}.log").write_text(worst * 20)
    (folder / "events.jsonl").write_text(worst * 2000)
    points = [job_pb2.CurvePoint(step=n, value=n / 3) for n in range(500)]
    status = job_pb2.JobStatus(
        name="job",
        curves=[job_pb2.Curve(name=f"metric-{n}", points=points) for n in range(50)],
        workers=[job_pb2.WorkerStatus(id=n, last_exit="x" * 300) for n in range(5000)],
        settings={"params": "p" * (1 << 20)},
        dead_letters=[job_pb2.DeadLetter(error=_long_error()) for _ in range(100)],
        warnings=["w" * 30_000] * 100,
        error=_long_error(),
    )
    (folder / "status.json").write_text(to_json(status))
    data = collect(folder)
    kept = json.loads(data[objects.STATUS_KEY])
    assert kept["name"] == "job"
    assert kept["error"]["what"] == "boom"
    assert len(json.loads(data[objects.LOGS_KEY])) > 10
    assert len(json.dumps(data).encode()) < 1 << 20


def test_it_has_as_many_dead_letters_as_fit(folder: Path) -> None:
    status = job_pb2.JobStatus(name="job")
    for number in range(2000):
        detail = "a traceback\n" * 100 if number < 100 else ""
        error = error_pb2.Error(what="boom " * 20, detail=detail)
        status.dead_letters.add(task=f"training/1/{number}", error=error)
    (folder / "status.json").write_text(to_json(status))
    kept = json.loads(collect(folder)[objects.STATUS_KEY])["dead_letters"]
    assert [each["task"] for each in kept] == [f"training/1/{n}" for n in range(len(kept))]
    assert 500 <= len(kept) < 2000
    assert "detail" not in kept[0]["error"] or not kept[0]["error"]["detail"]


def test_what_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert collect(tmp_path) == {
        objects.STATUS_KEY: "",
        objects.EVENTS_KEY: "",
        objects.TIMELINE_KEY: "",
        objects.LOGS_KEY: "{}",
    }
