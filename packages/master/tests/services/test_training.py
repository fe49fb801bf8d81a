"""Whole training jobs over gRPC: every record trains the counting model exactly once per epoch."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from acting.jobs import RunningJob, trained_weights, training_spec
from acting.worker import Acting, Worker

from edl_proto.v1 import job_pb2, parameters_pb2

RECORDS = 37 + 64 + 5


def events_of(job_dir: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (job_dir / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("update", ["ASYNC", "SYNC", "BOUNDED"])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_weight_is_the_number_of_epochs(tmp_path: Path, update: str, workers: int) -> None:
    spec = training_spec(tmp_path)
    spec.training.update = job_pb2.UpdateMode.Value(update)
    spec.workers.max = workers
    acting = Acting(RECORDS, sync=update == "SYNC")
    with RunningJob(spec, tmp_path / "job", acting) as job:
        assert job.wait() == 0
        status = job.app.status()
    assert acting.errors == []
    assert np.array_equal(trained_weights(spec), np.full(RECORDS, 2.0))
    assert status.state == job_pb2.SUCCEEDED
    assert status.records_trained == 2 * RECORDS
    assert status.progress.records_done == status.progress.records_total == 2 * RECORDS
    assert not status.HasField("error")
