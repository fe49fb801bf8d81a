"""What a job was asked for, and what it runs with, as names and texts for its status."""

from __future__ import annotations

import platform
from importlib import metadata

from google.protobuf import json_format

from edl_proto.public_settings import public_settings
from edl_proto.v1 import job_pb2

_NOT_SHOWN = ("name", "output", "job_dir", "containers", "kubernetes")
"""What a status says elsewhere, and how pods are made, whose variables may be secrets."""

_PACKAGES = ("edl-master", "tensorflow", "keras", "numpy")


def settings_of(spec: job_pb2.JobSpec) -> dict[str, str]:
    """All settings of a job by their dotted names, without what is empty and without passwords."""
    described = json_format.MessageToDict(spec, preserving_proto_field_name=True)
    return public_settings(described, _NOT_SHOWN)


def environment_of_this_process() -> dict[str, str]:
    """Versions of Python and of the packages that matter, those that are here, and the system."""
    found = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # a master needs no TensorFlow
    return found
