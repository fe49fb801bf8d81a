"""The settings of a job, as names and texts for its status."""

from __future__ import annotations

from google.protobuf import json_format

from edl_master.core.effects import LogEvent
from edl_master.core.parameters.modes import Replicated, UpdateMode
from edl_proto.v1 import job_pb2
from edl_runtime.public_settings import public_settings

_NOT_SHOWN = ("name", "output", "job_dir", "containers", "kubernetes")
"""Settings that a status shows elsewhere, and templates of pods, which may hold secrets."""


CODE = "model.code"
"""The setting that is the SHA-256 of the model's files as they were submitted."""


def settings_of(spec: job_pb2.JobSpec) -> dict[str, str]:
    """Return a job's settings by dotted names, without empty ones and without passwords."""
    described = json_format.MessageToDict(spec, preserving_proto_field_name=True)
    if spec.model.HasField("code"):
        described["model"]["code"] = spec.model.code.sha256
    return public_settings(described, _NOT_SHOWN)


def name_strategy(mode: UpdateMode | None) -> tuple[dict[str, str], LogEvent]:
    """Return the settings of the strategy that a model has decided on, and the event about it."""
    if isinstance(mode, Replicated):
        settings = {"training.strategy": "allreduce"}
        line = "The model has no embedding tables: all-reduce trains it."
    else:
        settings = {"training.strategy": "parameter-server", "training.update": "ASYNC"}
        line = "The model has embedding tables: a parameter server trains it."
    facts = {"strategy": settings["training.strategy"]}
    return settings, LogEvent("StrategyChosen", line, facts=facts)
