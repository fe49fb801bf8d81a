"""What a job was asked for, and what it runs with, as names and texts for its status."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from google.protobuf import json_format

from edl_proto.v1 import job_pb2

_NOT_SHOWN = ("name", "output", "job_dir", "containers", "kubernetes")
"""What a status says elsewhere, and how pods are made, whose variables may be secrets."""

_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_PACKAGES = ("edl-master", "tensorflow", "keras", "numpy")


def settings_of(spec: job_pb2.JobSpec) -> dict[str, str]:
    """All settings of a job by their dotted names, without what is empty and without passwords."""
    described = json_format.MessageToDict(spec, preserving_proto_field_name=True)
    kept = {key: value for key, value in described.items() if key not in _NOT_SHOWN}
    return {key: _USER_INFO.sub("", text) for key, text in _flat(kept, "") if text}


def environment_of_this_process() -> dict[str, str]:
    """Versions of Python and of the packages that matter, those that are here, and the system."""
    found = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # a master needs no TensorFlow
    return found


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _flat(item, f"{name}.{key}" if name else str(key))
        case list():
            yield name, ", ".join(map(str, value))
        case _:
            yield name, str(value)
