"""Jobs that fail, over gRPC: for which reason, and what they say."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from fakes.jobs import RunningJob, trained_weights, training_spec, write_numbers
from trained_model_jobs import predictions_in, spec_of

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2
from edl_testing.fake_worker import FakeWorker, WorkerBehavior


class Failing(FakeWorker):
    """Fails every task that holds record 40."""

    def predict(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> None:
        if b"40" not in self.records(lease):
            super().predict(lease, done)
            return
        self.fail(lease)

    def train(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> bool:
        """Two minibatches of such a task are trained."""
        if b"40" not in self.records(lease):
            return super().train(lease, done)
        assert self.pull(lease)
        for minibatch, numbers in itertools.islice(self.minibatches(lease), 2):
            assert self.push(lease, minibatch, numbers) == parameters_pb2.APPLIED
        self.fail(lease, permanent=True)
        return False

    def evaluate(self, lease: task_pb2.Lease, done: task_pb2.CompleteRequest) -> None:
        if b"40" not in self.records(lease):
            super().evaluate(lease, done)
            return
        self.fail(lease)

    def fail(self, lease: task_pb2.Lease, *, permanent: bool = False) -> None:
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
                permanent=permanent,
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


@pytest.mark.usefixtures("failing")
def test_a_failed_evaluation_is_of_a_file_of_the_validation_data(tmp_path: Path) -> None:
    spec = training_spec(tmp_path, (20, 19))
    spec.validation_data.append(write_numbers(tmp_path / "validation", (2,), first=39))
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(39)) as job:
        assert job.wait() == 1
        (letter,) = job.app.report.status().dead_letters
    assert letter.task == "evaluation/0/0"
    assert letter.records == f"{tmp_path}/validation/part-0.recordio [0, 2)"


@pytest.mark.usefixtures("failing")
def test_what_is_counted_as_trained_is_in_the_model_and_what_lacks_is_named(tmp_path: Path) -> None:
    """A task of ten records fails in each of two epochs, and eight of them have been trained."""
    spec = training_spec(tmp_path)
    spec.training.shuffle = False  # a task is a range of one file
    spec.failures.allow_dead_letters = True
    with RunningJob(spec, tmp_path / "job", WorkerBehavior(106)) as job:
        assert job.wait() == 0
        status = job.app.report.status()
    weights = trained_weights(spec)
    assert weights.sum() == status.records_trained == status.progress.records_done == 2 * 104
    info = json.loads((Path(spec.output) / "info.json").read_text())
    assert info["records"] == status.records_trained
    # Record 40 is the fourth of the second file, whose first is 37.
    assert {*np.flatnonzero(weights < 2)} <= {*range(37, 47)}
    assert status.tasks["training"].dead == 2
    letters = status.dead_letters
    assert [letter.records_trained for letter in letters] == [8, 8]
    assert all(letter.records.endswith("part-1.recordio [0, 10)") for letter in letters)
    lines = (tmp_path / "job" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    told = [event["message"] for event in events if event["kind"] == "TaskDeadLettered"]
    assert len(told) == 2
    for line in told:
        assert "records 0 to 9 of " in line
        assert "part-1.recordio (" in line
        assert "8 of its 10 records are in the model" in line


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


@pytest.mark.parametrize(
    ("digests", "code", "named"),
    [
        (("1f", "1f"), ErrorCode.SHAPE_MISMATCH, "'weights'"),
        # The cause comes first: with another vocabulary a variable has another size, too.
        (("1f", "2f"), ErrorCode.MODEL_CONTRACT, "StringLookup city (shops.py:9) has another"),
    ],
)
def test_a_second_worker_with_another_model_ends_the_job_and_names_what_differs(
    tmp_path: Path, digests: tuple[str, str], code: ErrorCode, named: str
) -> None:
    models = iter(zip((106, 107), digests, strict=True))
    lock = threading.Lock()

    class Another(FakeWorker):
        def describe(self) -> task_pb2.ModelDescription:
            with lock:
                model = super().describe()
                model.variables[0].shape[0], digest = next(models, (106, digests[0]))
                city = {"name": "StringLookup city", "place": "shops.py:9", "digest": digest}
                model.layer_states.add(**city)
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
    assert status.error.code == code
    assert named in status.error.what
