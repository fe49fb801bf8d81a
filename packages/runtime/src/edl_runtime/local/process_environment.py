"""The environments of a job's processes, from which that of the submission can be restored.

A worker has other temporary files than the process that submitted the job. The supervisor that it
may start, and the masters and workers after it, are to have what the submission had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

CHANGED = "EDL_CHANGED_ENVIRONMENT"
"""The variables that were set for a process, as JSON: name to the former value, or null."""

THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
"""Variables that limit TensorFlow's threads; its default is one for each core."""

HASH_SEED = "PYTHONHASHSEED"
"""The variable that decides the hashes of texts, and with them the order of sets."""


def order_sets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that gives texts the same hashes in all processes of all jobs.

    A model file may number the members of a set, or use ``hash``: each of its workers, and later
    evaluations and predictions, must get the same numbers. A number that the user has set stays.
    """
    return {} if environ.get(HASH_SEED, "").isdecimal() else {HASH_SEED: "0"}


def change(environ: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Set variables in an environment so that ``restore`` can restore it."""
    former = _former(environ)
    for name in changes:
        former.setdefault(name, environ.get(name))
    return {**environ, **changes, CHANGED: json.dumps(former)}


def restore(environ: Mapping[str, str]) -> dict[str, str]:
    """Restore the environment that ``change`` was first called with."""
    former = {**_former(environ), CHANGED: None}
    kept = {name: value for name, value in environ.items() if name not in former}
    return kept | {name: value for name, value in former.items() if value is not None}


def _former(environ: Mapping[str, str]) -> dict[str, str | None]:
    try:
        found = json.loads(environ.get(CHANGED, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
