"""The code of a model as a job records it: the SHA-256 of each file by its path in the zoo."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeAlias

from edl.core.problem import Problem, usage

Listing: TypeAlias = Mapping[str, str]

JOB_CODE, NEW_CODE = "job", "new"
"""Which code a resumed job continues with: its own, or the files as they are now."""


def digest(files: Listing) -> str:
    """Return the hash of a listing; ``sha256sum`` of the files, sorted by path, has the same."""
    lines = "".join(f"{files[path]}  {path}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def describe_changes(before: Listing, after: Listing) -> str:
    """Return which files differ, such as ``changed mnist.py; added util.py``; empty if none."""
    kinds = {
        "changed": [path for path in before.keys() & after.keys() if before[path] != after[path]],
        "added": after.keys() - before.keys(),
        "removed": before.keys() - after.keys(),
    }
    return "; ".join(f"{kind} {', '.join(sorted(paths))}" for kind, paths in kinds.items() if paths)


def choice_error(code: str) -> Problem:
    """Return the error of a choice that there is not."""
    return usage(
        f"--code {code} is neither {JOB_CODE} nor {NEW_CODE}",
        where="--code",
        remedy=f"{JOB_CODE} continues with the submitted code, {NEW_CODE} with the files as they"
        " are now.",
    )


def changed_code_error(job: str, changes: str, folder: str, *, takes_code: bool) -> Problem:
    """Return the error of resuming a job whose model files have changed."""
    new = f"edl resume {job} --code new takes the files as they are now."
    return usage(
        f"the model files have changed since {job} was submitted: {changes}",
        where=folder,
        remedy=f"edl resume {job} --code job continues with the submitted code"
        + (f"; {new}" if takes_code else "."),
    )


def fixed_code_error(job: str) -> Problem:
    """Return the error of resuming with new code a job that cannot take any."""
    return usage(
        f"{job} has its code in an image or a trained model, which stays as it is",
        where="--code new",
        remedy=f"edl resume {job} --code job continues with that code; a new job takes other code,"
        " and --init-from the values of a trained model.",
    )
