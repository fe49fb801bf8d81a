"""Tasks of jobs on the points, and what Keras computes in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import reference
from conftest import RECORDS

import recordio
import recordio.example
from edl_proto.v1 import job_pb2, parameters_pb2
from edl_testing.fake_master import FakeMaster
from edl_worker.engines.tensorflow import weights
from edl_worker.trained_model import weight_files


def all_points(points: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    records = list(recordio.open_source(str(points)).read(0, RECORDS))
    examples = [recordio.example.decode(record) for record in records]
    return np.stack([e["x"] for e in examples]), np.array([e["label"][0] for e in examples])


def by_keras(
    job: job_pb2.JobSpec, named: reference.Named, points: Path
) -> tuple[keras.Model, dict[str, float]]:
    """Return the model with these values, and the result of ``model.evaluate`` for all points."""
    file = reference.load_model(job)
    weights.assign(file.model, weight_files.NamedValues(named, "the master"))
    x, y = all_points(points)
    file.model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    result = file.model.evaluate(x, y, batch_size=RECORDS, verbose=0, return_dict=True)
    return file.model, result


def predict_job(job: job_pb2.JobSpec, trained: Path) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec()
    spec.CopyFrom(job)
    spec.ClearField("model")
    spec.ClearField("training")
    spec.type, spec.trained_model, spec.output = job_pb2.PREDICT, str(trained), "unused"
    spec.prediction.format = "recordio"
    return spec


def drop_first_replies(master: FakeMaster, minibatch: int) -> None:
    """Lose the reply to the first push of this minibatch in each task."""
    seen: set[int] = set()

    def on_push(_: FakeMaster, header: parameters_pb2.PushHeader) -> None:
        if header.claim.minibatch == minibatch and header.claim.lease.token not in seen:
            seen.add(header.claim.lease.token)
            master.drop_next_reply = True

    master.on_push = on_push
