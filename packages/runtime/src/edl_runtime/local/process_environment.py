"""Environments of the processes of a job, and the way back to that of its submission.

A worker has other temporary files than the process that submitted the job. The supervisor that it
may start, and the masters and workers after it, are to have what the submission had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

CHANGED = "EDL_CHANGED_ENVIRONMENT"
"""The variables that were set for a process, as JSON: name to the former value, or null."""

THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
"""Variables that say how many threads TensorFlow starts; by itself, one for each core it sees."""


def changed(environ: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """An environment with some variables set, from which ``original`` leads back."""
    former = _former(environ)
    for name in changes:
        former.setdefault(name, environ.get(name))
    return {**environ, **changes, CHANGED: json.dumps(former)}


def original(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that ``changed`` was given first."""
    former = {**_former(environ), CHANGED: None}
    kept = {name: value for name, value in environ.items() if name not in former}
    return kept | {name: value for name, value in former.items() if value is not None}


def _former(environ: Mapping[str, str]) -> dict[str, str | None]:
    try:
        found = json.loads(environ.get(CHANGED, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
