"""The settings of a job, as names and texts for its status."""

from __future__ import annotations

from google.protobuf import json_format

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
