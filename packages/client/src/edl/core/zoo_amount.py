"""Limits how much of a model zoo is copied without the user's consent."""

from __future__ import annotations

from edl.core.problem import Problem
from edl.core.quantities import plural, size
from edl_runtime.model.zoo_files import IGNORE_FILE, ZooFiles

_MANY_NBYTES = 16_000_000
_MANY_FILES = 500
"""More than that is hardly a model's code."""


def describe(files: ZooFiles) -> str:
    """Return how much of a zoo is copied, and what is not though the code names it."""
    line = f"model zoo: {plural(len(files.paths), 'file')}, {size(files.nbytes)}"
    if files.secrets:
        line += (
            f"; left out, since they look like secrets: {', '.join(files.secrets)}"
            f" (a line such as !{files.secrets[0]} in {IGNORE_FILE} includes one,"
            " unless it is a link that leads out of the zoo)"
        )
    return line


def check_amount(files: ZooFiles, folder: str, *, accepted: bool) -> None:
    """Raises: Problem: LIMIT_EXCEEDED, if so much has to be accepted first."""
    if accepted or (files.nbytes <= _MANY_NBYTES and len(files.paths) <= _MANY_FILES):
        return
    raise Problem(
        "LIMIT_EXCEEDED",
        f"{plural(len(files.paths), 'file')} of the model zoo, {size(files.nbytes)}, would be"
        " copied",
        where=folder,
        remedy=f"A file {IGNORE_FILE} in the zoo leaves files out, as .gitignore does;"
        " --yes accepts them.",
    )
