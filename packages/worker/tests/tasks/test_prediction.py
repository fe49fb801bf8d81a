"""Predictions of a trained model, in the order of the records."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from conftest import ZOO, Master, Start, lease
from keras_jobs import load
from points_jobs import all_points, by_keras, predict_job

import recordio
import recordio.example
from edl_proto.errors import ErrorCode
from edl_proto.v1 import job_pb2, model_pb2, task_pb2
from edl_testing.fake_master import FakeMaster
from edl_worker.codec.jobs import decode_job
from edl_worker.model_file.errors import ContractErrors
from edl_worker.tasks.trial_run import run_trial, run_trial_at_start


def predictions(
    points: Path, parts: Path, cuts: tuple[int, ...] = (0, 33, 100)
) -> list[task_pb2.Lease]:
    tasks = []
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        task = lease(task_pb2.PREDICTION, points, start, stop, number=number)
        task.part_path = str(parts / f"{number}.part")
        tasks.append(task)
    return tasks


def read_part(part: Path) -> list[dict[str, Any]]:
    """Return the features of all records."""
    source = recordio.open_source(str(part))
    return [dict(recordio.example.decode(record)) for record in source.read(0, 100)]


def test_each_record_gets_its_prediction_in_order_on_a_machine_without_the_zoo(
    finished_job: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDL_TEST_PREDICTIONS", str(tmp_path / "processed"))
    output, trained_by = finished_job
    moved = tmp_path / "elsewhere"
    shutil.move(output, moved)
    tasks = predictions(points, tmp_path / "parts")
    master = start_master(predict_job(job, moved), [tasks])
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    assert not master.received.ready[0].model.variables
    assert [t.complete.records for t in master.all_tasks() if t.complete] == [33, 67]
    records = [record for n in range(2) for record in read_part(tmp_path / "parts" / f"{n}.part")]
    got = np.stack([record["prediction"] for record in records])
    x, _ = all_points(points)
    model, _ = by_keras(job, trained_by.by_name(), points)
    np.testing.assert_allclose(got, model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["0.part", "1.part"]
    # The model file's own PredictionOutputsProcessor has got them too: minibatches of 8.
    processed = [line.split() for line in (tmp_path / "processed").read_text().splitlines()]
    assert [int(count) for _, count in processed] == [8, 8, 8, 8, 1, *[8] * 8, 3]
    assert {worker for worker, _ in processed} == {"0"}


def test_what_is_kept_of_each_record_lies_beside_its_prediction(
    finished_job: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
) -> None:
    output, trained_by = finished_job
    predict = predict_job(job, output)
    predict.prediction.keep.extend(["label", "never"])
    predict.prediction.postprocess = "argmax"
    master = start_master(predict, [predictions(points, tmp_path / "parts", (7, 33))])
    assert start_worker(master).wait() == 0
    assert not master.received.failed, master.received.failed
    records = read_part(tmp_path / "parts" / "0.part")
    assert all(sorted(record) == ["label", "prediction"] for record in records)
    x, labels = all_points(points)
    model, _ = by_keras(job, trained_by.by_name(), points)
    wanted = np.argmax(model.predict(x, verbose=0), axis=-1)
    assert [record["label"].tolist() for record in records] == [[n] for n in labels[7:33]]
    assert [record["prediction"].tolist() for record in records] == [[n] for n in wanted[7:33]]


def test_the_model_file_draws_the_random_numbers_of_the_training(
    finished_job: tuple[Path, FakeMaster], job: job_pb2.JobSpec
) -> None:
    output, _ = finished_job
    with (output / "model_zoo" / "points.py").open("a") as file:
        file.write("\nimport numpy as np\nmodel.drawn = np.random.rand()\n")
    described = output / "trained_model.pb"
    told = model_pb2.TrainedModel.FromString(described.read_bytes())
    told.seed = 7
    described.write_bytes(told.SerializeToString())
    loaded = load(decode_job(predict_job(job, output)), {"worker_id": 0})
    assert loaded.engine.source.model.drawn == np.random.RandomState(7).rand()


def test_a_second_softmax_is_hardly_meant(
    finished_job: tuple[Path, FakeMaster], job: job_pb2.JobSpec
) -> None:
    predict = predict_job(job, finished_job[0])
    predict.prediction.postprocess = "softmax"
    loaded = load(decode_job(predict), {"worker_id": 0})
    assert loaded.describe().warnings == ()
    file = loaded.engine.source
    inputs = keras.Input((2,))
    file.model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
    (warning,) = loaded.describe().warnings
    assert "--postprocess softmax is applied to probabilities" in warning


def test_the_trial_of_a_prediction_finds_a_function_that_suits_no_output(
    finished_job: tuple[Path, FakeMaster], job: job_pb2.JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict = predict_job(job, finished_job[0])
    predict.prediction.postprocess = "softmax"
    loaded = load(decode_job(predict), {"worker_id": 0})
    run_trial(loaded)
    monkeypatch.setattr(
        type(loaded.infer), "__call__", lambda infer, batch: np.zeros((batch.size, 1))
    )
    for trial in (run_trial, run_trial_at_start):
        with pytest.raises(ContractErrors, match="softmax cannot be applied") as refused:
            trial(loaded)
        (error,) = refused.value.errors
        assert error.code == ErrorCode.USAGE


def test_a_feature_with_the_name_of_an_output_cannot_be_kept(
    finished_job: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
) -> None:
    predict = predict_job(job, finished_job[0])
    predict.prediction.keep.append("prediction")
    with recordio.Writer(str(tmp_path / "named.recordio")) as writer:
        for record in recordio.open_source(str(points)).read(0, 8):
            features = dict(recordio.example.decode(record))
            writer.write(recordio.example.encode(features | {"prediction": 1}))
    task = predictions(tmp_path / "named.recordio", tmp_path / "parts", (0, 8))
    master = start_master(predict, [task])
    assert start_worker(master).wait() == 1, "before its first task"
    (failed,) = master.received.failed
    assert failed.permanent
    assert "the feature prediction cannot be kept" in failed.error.what
    with pytest.raises(ContractErrors, match="the feature prediction cannot be kept"):
        run_trial(load(decode_job(predict), {"worker_id": 0}))


@pytest.mark.parametrize("function", ["double", "halve"])
def test_another_number_of_predictions_than_records_is_an_error(
    function: str,
    finished_job: tuple[Path, FakeMaster],
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    tmp_path: Path,
) -> None:
    shutil.copy(ZOO / "faulty.py", finished_job[0] / "model_zoo")
    predict = predict_job(job, finished_job[0])
    predict.model.dataset_fn = f"faulty.{function}"
    master = start_master(predict, [predictions(points, tmp_path / "parts", (0, 40))])
    assert start_worker(master).wait() == 0
    failed = master.received.failed[0]
    assert failed.error.code == ErrorCode.MODEL_CONTRACT
    assert failed.permanent
    assert "40 records" in failed.error.what
    assert "exactly one" in failed.error.what
    assert not list((tmp_path / "parts").iterdir())


def test_a_directory_without_a_trained_model_is_reported(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start, tmp_path: Path
) -> None:
    master = start_master(predict_job(job, tmp_path), [predictions(points, tmp_path)])
    assert start_worker(master).wait() == 1 or master.received.failed
    (failed,) = master.received.failed
    assert failed.error.code == ErrorCode.MODEL_NOT_FOUND
    assert "trained_model.pb" in failed.error.what
