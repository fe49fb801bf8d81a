"""Trial runs of model files that a test writes."""

from __future__ import annotations

from pathlib import Path

import keras_jobs
import pytest
from model_files import rows
from zoo_folder import ZooFolder

import recordio
from edl_proto.errors import EdlError
from edl_proto.v1 import job_pb2
from edl_worker.codec.jobs import decode_job
from edl_worker.model_file.errors import ContractErrors
from edl_worker.tasks.loaded_model import LoadedModel
from edl_worker.tasks.trial_run import run_trial


def write_rows(path: Path) -> str:
    """Write a few records for the model files of ``model_files``."""
    with recordio.Writer(str(path)) as writer:
        for row in rows(16):
            writer.write(row)
    return str(path)


def load(
    zoo: ZooFolder, data: str, source: str, minibatch_size: int = 8, **training: int
) -> LoadedModel:
    zoo.write("mine.py", source)
    model = zoo.reference("mine")
    spec = job_pb2.JobSpec(
        name="tried",
        type=job_pb2.TRAIN,
        model=job_pb2.ModelSpec(model_zoo=model.model_zoo, model_def=model.model_def),
        data=[data],
        minibatch_size=minibatch_size,
        training=job_pb2.TrainingSpec(**{"local_steps": 1, "num_epochs": 1, **training}),
    )
    return keras_jobs.load(decode_job(spec), {"job": "tried", "worker_id": 0, "master": ""})


def refusal(zoo: ZooFolder, data: str, source: str, **training: int) -> EdlError:
    with pytest.raises(ContractErrors) as caught:
        run_trial(load(zoo, data, source, **training))
    (error,) = caught.value.errors
    assert error.where
    assert error.remedy
    return error
