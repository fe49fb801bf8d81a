"""Evaluation and prediction jobs, and jobs that fail, over gRPC."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from fakes.jobs import DEADLINE_S, RunningJob, complete_spec, training_spec, write_numbers
from fakes.threads import Died

import recordio
from edl_master.adapters.checkpoint_files import Checkpoint
from edl_master.adapters.checkpoints import LocalCheckpoints
from edl_master.adapters.prediction_output import PredictionOutput
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, task_pb2
from edl_testing.fake_worker import FakeWorker, WorkerBehavior


def spec_of(tmp_path: Path, kind: str, sizes: tuple[int, ...]) -> job_pb2.JobSpec:
    spec = complete_spec(
        type=job_pb2.JobType.Value(kind),
        data=[write_numbers(tmp_path / "data", sizes)],
        trained_model=str(tmp_path / "model"),
        output=str(tmp_path / "out" / "predictions") if kind == "PREDICT" else "",
        records_per_task=10,
        workers=job_pb2.WorkersSpec(min=1, max=2),
        tensorboard_dir=str(tmp_path / "job" / "tensorboard"),
    )
    spec.ClearField("model")
    spec.ClearField("training")
    if kind == "PREDICT":
        spec.prediction.format = "recordio"
    return spec


def test_an_evaluation_job_gives_metrics(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "EVALUATE", (37, 64))
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert status.state == job_pb2.SUCCEEDED
    assert dict(status.metrics) == {"mean_weight": 1.0}
    assert status.progress.records_done == 101
    assert status.tasks["evaluation"].done == 11


def predictions_in(path: Path) -> list[bytes]:
    source = recordio.open_source(str(path))
    return list(source.read(0, source.count()))


def test_predictions_are_one_per_record_in_order_in_a_file_per_file(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "PREDICT", (37, 0, 64, 5))
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
    """What the snapshot counts as done has its part, and is not done again."""
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
    """Also when the disk is slow to rename the part of the last task."""
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


def made(path: Path) -> tuple[int, int]:
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
    before = made(output)
    if lost == "all":
        shutil.rmtree(tmp_path / "job" / "snapshots")
    behavior = WorkerBehavior(0)
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    again = lost == "all"
    assert done_tasks(behavior, "PREDICTION") == (11 if again else 0)
    assert (made(output) == before) != again
    assert len(predictions_in(output / "part-0.recordio")) == 37
    assert status.predictions == 101
    left = sorted(path.name for path in output.parent.iterdir())
    assert left == ["predictions", "predictions.html"]


class Failing(FakeWorker):
    """Fails every task that holds record 40."""

    def predict(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> None:
        if b"40" not in self.records(lease):
            super().predict(lease, done)
            return
        self.call(
            self.tasks.Fail,
            task_pb2.FailRequest(
                worker_id=self.id,
                incarnation=self.incarnation,
                instance=self.instance.name,
                lease=self.held.pop(lease.token),
                error=EdlError(
                    ErrorCode.USER_CODE, "ValueError: 40", where="zoo/a.py:7, dataset_fn"
                ).to_proto(),
            ),
        )
        raise EdlError(ErrorCode.STALE_LEASE, "it is not this worker's any more")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl_testing.fake_worker.FakeWorker", Failing)


@pytest.mark.usefixtures("failing")
def test_a_task_that_fails_for_good_fails_the_job_and_says_where(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "PREDICT", (37, 64))
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
        assert job.wait() == 1
        status = job.app.report.status()
    assert status.state == job_pb2.FAILED
    assert status.error.code == ErrorCode.USER_CODE
    assert "zoo/a.py:7" in status.error.where
    assert "part-1.recordio" in status.error.where
    (letter,) = status.dead_letters
    assert letter.records.endswith("part-1.recordio [0, 10)")
    assert not Path(spec.output).exists()
    written = json.loads((tmp_path / "job" / "status.json").read_text())
    assert written["error"]["code"] == "USER_CODE"


@pytest.mark.usefixtures("failing")
def test_with_dead_letters_allowed_the_rest_is_predicted(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "PREDICT", (37, 64))
    spec.failures.allow_dead_letters = True
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    assert status.tasks["prediction"].dead == 1
    assert len(predictions_in(Path(spec.output) / "part-0.recordio")) == 37
    found = predictions_in(Path(spec.output) / "part-1.recordio")
    assert found == [b"predicted %d" % number for number in range(47, 101)]


def test_a_worker_that_cannot_work_fails_the_job_with_its_own_words(tmp_path: Path) -> None:
    class Contractless(FakeWorker):
        def join(self) -> None:
            super().join()
            raise EdlError(
                ErrorCode.MODEL_CONTRACT, "there is no loss", where="zoo/a.py", detail="x" * 5000
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edl_testing.fake_worker.FakeWorker", Contractless)
        spec = spec_of(tmp_path, "EVALUATE", (37,))
        with RunningJob(spec, tmp_path / "job", WorkerBehavior(0)) as job:
            assert job.wait() == 1
            status = job.app.report.status()
    assert status.error.code == ErrorCode.MODEL_CONTRACT
    assert status.error.where == "zoo/a.py"
    assert len(status.error.detail) == 5000
    assert status.progress.records_done == 0


def test_workers_that_crash_before_any_work_end_the_job_with_their_log(tmp_path: Path) -> None:
    class Crashing(FakeWorker):
        def live(self) -> int:
            self.instance.printed.append("Segmentation fault, so to speak")
            return 3

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edl_testing.fake_worker.FakeWorker", Crashing)
        spec = training_spec(tmp_path)
        spec.workers.min = spec.workers.max = 1
        with RunningJob(spec, tmp_path / "job", WorkerBehavior(106)) as job:
            assert job.wait() == 1
            status = job.app.report.status()
    assert status.error.code == ErrorCode.WORKER_CRASH_LOOP
    assert "Segmentation fault" in status.error.detail
    assert status.worker_failures == 3


def test_an_optimizer_that_the_master_lacks_ends_the_job(tmp_path: Path) -> None:
    spec = training_spec(tmp_path)
    behavior = WorkerBehavior(106, optimizer='{"class_name": "Magic", "config": {}}')
    with RunningJob(spec, tmp_path / "job", behavior) as job:
        assert job.wait() == 1
        status = job.app.report.status()
    assert status.state == job_pb2.FAILED
    assert status.error.code == ErrorCode.OPTIMIZER_UNSUPPORTED
    assert "Magic" in status.error.what
    assert status.progress.steps == 0


def test_a_second_worker_with_another_model_ends_the_job_and_names_the_variable(
    tmp_path: Path,
) -> None:
    sizes = iter((106, 107))
    lock = threading.Lock()

    class Another(FakeWorker):
        def describe(self) -> task_pb2.ModelDescription:
            with lock:
                model = super().describe()
                model.variables[0].shape[0] = next(sizes, 106)
                return model

    def at_minibatch(worker: FakeWorker, minibatch: int) -> None:
        # The first one waits for the second.
        while not worker.instance.asked.wait(0.01):
            worker.instance.check()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edl_testing.fake_worker.FakeWorker", Another)
        behavior = WorkerBehavior(106, at_minibatch=at_minibatch)
        with RunningJob(training_spec(tmp_path), tmp_path / "job", behavior) as job:
            assert job.wait() == 1
            status = job.app.report.status()
    assert status.error.code == ErrorCode.SHAPE_MISMATCH
    assert "'weights'" in status.error.what
