"""Errors and warnings of a model file that runs as a copy, with the files that its author knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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
    texts = (error.what, error.where, error.remedy, error.detail)
    what, where, remedy, detail = name_in_texts(texts, model)
    for prefix in _prefixes(model):
        for found in re.findall(re.escape(prefix) + f"({_PATH_END})", error.what):
            submitted, copied = Path(os.path.abspath(found)), Path(prefix + found)
            if submitted.exists() and not copied.exists():
                remedy = _remedy(submitted, zoo)
    return EdlError(error.code, what, where=where, remedy=remedy, detail=detail)


def name_in_texts(texts: Iterable[str], model: ModelReference) -> tuple[str, ...]:
    """Return texts with the paths that were submitted in place of those of the copy."""
    if model.submitted_zoo is None:
        return tuple(texts)
    copies = re.compile("|".join(map(re.escape, _prefixes(model))))
    return tuple(copies.sub("", text) for text in texts)


def _prefixes(model: ModelReference) -> list[str]:
    return sorted({model.copies, str(Path(model.copies).resolve())}, key=len, reverse=True)


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
