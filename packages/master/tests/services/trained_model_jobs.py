"""Jobs on a trained model: their specification, and the predictions of one."""

from __future__ import annotations

from pathlib import Path

from fakes.jobs import complete_spec, write_numbers

import recordio
from edl_proto.v1 import job_pb2


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


def predictions_in(path: Path) -> list[bytes]:
    source = recordio.open_source(str(path))
    return list(source.read(0, source.count()))
