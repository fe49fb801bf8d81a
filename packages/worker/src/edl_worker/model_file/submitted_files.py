"""Errors of a model file that runs as a copy, in terms of the files that its author knows."""

from __future__ import annotations

import os
import re
from pathlib import Path

from edl_proto.errors import EdlError
from edl_worker.core.job import ModelReference

_PATH_END = r"""[^\s'":;,()\[\]]+"""


def name_submitted_files(error: EdlError, model: ModelReference) -> EdlError:
    """Return an error with the paths that were submitted in place of those of the copy.

    A file that the copy lacks, and the submitted zoo has, becomes the remedy.
    """
    zoo = model.submitted_zoo
    if zoo is None:
        return error
    prefixes = sorted({model.copies, str(Path(model.copies).resolve())}, key=len, reverse=True)
    copies = re.compile("|".join(map(re.escape, prefixes)))
    texts = (error.what, error.where, error.detail)
    what, where, detail = (copies.sub("", text) for text in texts)
    remedy = copies.sub("", error.remedy)
    for prefix in prefixes:
        for found in re.findall(re.escape(prefix) + f"({_PATH_END})", error.what):
            submitted, copied = Path(os.path.abspath(found)), Path(prefix + found)
            if submitted.exists() and not copied.exists():
                remedy = _remedy(submitted, zoo)
    return EdlError(error.code, what, where=where, remedy=remedy, detail=detail)


def _remedy(missing: Path, zoo: Path) -> str:
    if missing.is_relative_to(zoo):
        name = missing.relative_to(zoo).as_posix()
        return (
            f"The job's copy of the model zoo lacks it: a line !{name} in {zoo / '.edlignore'}"
            " adds it."
        )
    return (
        f"The job runs a copy of the model zoo {zoo}, and this file is outside of it: move it into"
        " the zoo, or name it by its whole path."
    )
