"""Evaluation and prediction jobs, over gRPC."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from fakes.jobs import DEADLINE_S, RunningJob
from fakes.threads import Died
from trained_model_jobs import predictions_in, spec_of

from edl_master.adapters.checkpoint_files import Checkpoint
from edl_master.adapters.checkpoints import LocalCheckpoints
from edl_master.adapters.prediction_output import PredictionOutput
from edl_proto.v1 import job_pb2, task_pb2
from edl_testing.fake_worker import FakeWorker, WorkerBehavior


def test_an_evaluation_job_gives_metrics(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "EVALUATE", (37, 64))
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert status.state == job_pb2.SUCCEEDED
    assert dict(status.metrics) == {"mean_weight": 1.0}
    assert status.progress.records_done == 101
    assert status.tasks["evaluation"].done == 11


def test_predictions_are_one_per_record_in_order_in_a_file_per_file(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "PREDICT", (37, 0, 64, 5))
    spec.serving.save_page = True
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    output = Path(spec.output)
    assert sorted(path.name for path in output.iterdir()) == [
        f"part-{number}.recordio" for number in range(4)
    ]
    first = 0
    for number, size in enumerate((37, 0, 64, 5)):
        found = predictions_in(output / f"part-{number}.recordio")
        assert found == [b"predicted %d" % record for record in range(first, first + size)]
        first += size
    assert status.predictions == 106
    # Nothing else is left but the page, neither beside the output nor in the job's directory.
    assert sorted(path.name for path in output.parent.iterdir()) == [
        "predictions",
        "predictions.html",
    ]
    page = (output.parent / "predictions.html").read_text()
    assert '"state":"SUCCEEDED"' in page.replace(" ", "")
    assert '"JobSucceeded"' in page
    assert not (tmp_path / "job" / "parts").exists()


def test_predictions_can_be_one_file(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "PREDICT", (37, 64))
    spec.output = str(tmp_path / "all.recordio")
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
        assert job.wait() == 0
    assert predictions_in(Path(spec.output)) == [b"predicted %d" % n for n in range(101)]


def test_predictions_of_workers_that_die_appear_once(tmp_path: Path) -> None:
    deaths: set[int] = set()
    lock = threading.Lock()

    def at_record(worker: FakeWorker, _: int) -> None:
        with lock:
            (token,) = worker.held
            if len(deaths) < 8 and token not in deaths:
                deaths.add(token)
                raise Died

    spec = spec_of(tmp_path, "PREDICT", (37, 64))
    spec.output = str(tmp_path / "all.recordio")
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(0, at_minibatch=at_record)) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert predictions_in(Path(spec.output)) == [b"predicted %d" % n for n in range(101)]
    assert (status.predictions, status.preemptions) == (101, 8)


def done_tasks(behavior: WorkerBehavior, kind: str) -> int:
    """How many tasks of a kind workers have begun."""
    return sum(each == kind for _, each in behavior.seen)


def tasks_kept(job_dir: Path) -> int:
    """How many tasks the newest snapshot counts as done."""
    for place in sorted((job_dir / "snapshots").glob("counting-*"), reverse=True):
        ledger = json.loads((place / "ledger.json").read_bytes())["ledger"]
        return sum(round_["done"] for round_ in ledger["rounds"])
    return 0


def kill_at_task(spec: job_pb2.JobSpec, job_dir: Path, task: int) -> None:
    """Play a job with one worker, and end master and worker in the middle of a task.

    All tasks before it are in a snapshot by then.
    """

    def at_work(worker: FakeWorker, _: int) -> None:
        if len(worker.behavior.seen) == task:
            while not worker.instance.asked.wait(0.01):
                worker.instance.check()

    spec.workers.min = spec.workers.max = 1
    behavior = WorkerBehavior(0, at_minibatch=at_work)
    with RunningJob(spec, job_dir, behavior) as job:
        deadline = time.monotonic() + DEADLINE_S
        while tasks_kept(job_dir) < task - 1:
            assert time.monotonic() < deadline, "no snapshot of all tasks before this one"
            time.sleep(0.02)
    assert job.exit_code is None


def events_of(job_dir: Path) -> list[str]:
    lines = (job_dir / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["kind"] for line in lines]


def test_a_prediction_goes_on_where_its_master_died(tmp_path: Path) -> None:
    """The tasks that the snapshot counts as done have their parts, and are not done again."""
    spec = spec_of(tmp_path, "PREDICT", (37, 64))
    spec.output = str(tmp_path / "all.recordio")
    kill_at_task(spec, tmp_path / "job", 5)
    parts = tmp_path / "job" / "parts"
    made_at = (parts / "0000000000.recordio").stat().st_mtime_ns
    behavior = WorkerBehavior(0)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert (parts / "0000000000.recordio").stat().st_mtime_ns == made_at
        assert job.wait() == 0
        status = job.app.report.status()
    assert done_tasks(behavior, "PREDICTION") == 11 - 4
    assert predictions_in(Path(spec.output)) == [b"predicted %d" % n for n in range(101)]
    assert (status.predictions, status.progress.records_done) == (101, 101)
    assert "CheckpointRestored" in events_of(tmp_path / "job")
    assert not parts.exists()


def test_what_a_snapshot_counts_as_done_is_there_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if the disk is slow to rename the part of the last task."""
    spec = spec_of(tmp_path, "PREDICT", (37, 64))
    parts = tmp_path / "job" / "parts"
    kept: list[tuple[int, int]] = []
    write, replace = LocalCheckpoints.write, os.replace

    def writes(
        place: LocalCheckpoints, checkpoint: Checkpoint, parts_of_servers: list[Path]
    ) -> str:
        assert not parts_of_servers
        tasks = checkpoint.documents["ledger"]["ledger"]
        done = tasks["closed"]["prediction"].get("done", 0)
        done += sum(round_["done"] for round_ in tasks["rounds"])
        kept.append((done, sum("-" not in path.name for path in parts.glob("*.recordio"))))
        return write(place, checkpoint)

    def replaces_slowly(source: str, to: Path) -> None:
        if Path(to).name == "0000000010.recordio":
            time.sleep(1.0)
        replace(source, to)

    monkeypatch.setattr(LocalCheckpoints, "write", writes)
    monkeypatch.setattr("edl_master.adapters.prediction_output.os.replace", replaces_slowly)
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
        assert job.wait() == 0
    assert kept[-1][0] == 11
    assert all(there >= done for done, there in kept), kept


def test_a_prediction_whose_parts_are_gone_starts_over_and_says_so(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "PREDICT", (37, 64))
    spec.output = str(tmp_path / "all.recordio")
    kill_at_task(spec, tmp_path / "job", 5)
    (tmp_path / "job" / "parts" / "0000000002.recordio").unlink()
    behavior = WorkerBehavior(0)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert done_tasks(behavior, "PREDICTION") == 11
    assert predictions_in(Path(spec.output)) == [b"predicted %d" % n for n in range(101)]
    assert status.predictions == 101
    kinds = events_of(tmp_path / "job")
    assert "PredictionsMissing" in kinds
    assert "CheckpointRestored" not in kinds


def test_an_evaluation_goes_on_where_its_master_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Seeing(FakeWorker):
        def evaluate(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> None:
            self.behavior.at_minibatch(self, 0)
            super().evaluate(lease, done)

    monkeypatch.setattr("edl_testing.fake_worker.FakeWorker", Seeing)
    spec = spec_of(tmp_path, "EVALUATE", (37, 64))
    kill_at_task(spec, tmp_path / "job", 5)
    behavior = WorkerBehavior(0)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert done_tasks(behavior, "EVALUATION") == 11 - 4
    assert dict(status.metrics) == {"mean_weight": 1.0}
    assert status.progress.records_done == status.progress.records_total == 101
    assert status.tasks["evaluation"].done == 11


def identify(path: Path) -> tuple[int, int]:
    """Which file or directory this is, and since when."""
    return path.stat().st_ino, path.stat().st_ctime_ns


@pytest.mark.parametrize("lost", ["its word", "all"])
def test_a_prediction_that_was_joined_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The master dies when the output is in its place, before it can say so."""
    joined = threading.Event()
    join = PredictionOutput.finish

    def joins_and_dies(predictions: PredictionOutput, dead: int = 0) -> None:
        join(predictions, dead)
        joined.set()
        threading.Event().wait()

    spec = spec_of(tmp_path, "PREDICT", (37, 64))
    output = Path(spec.output)
    with monkeypatch.context() as patch:
        patch.setattr(PredictionOutput, "finish", joins_and_dies)
        with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
            assert joined.wait(DEADLINE_S)
    assert job.exit_code is None
    before = identify(output)
    if lost == "all":
        shutil.rmtree(tmp_path / "job" / "snapshots")
    behavior = WorkerBehavior(0)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    again = lost == "all"
    assert done_tasks(behavior, "PREDICTION") == (11 if again else 0)
    assert (identify(output) == before) != again
    assert len(predictions_in(output / "part-0.recordio")) == 37
    assert status.predictions == 101
    left = [path.name for path in output.parent.iterdir()]
    assert left == ["predictions"], "the specification asks for no page"
