"""Compares the columns of CSV files before a job starts; other differences its master finds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

import recordio
import recordio.example
from edl.adapters import data_files, trained_models
from edl.core.locations import scheme
from edl.core.options import Verb
from edl.core.submission import Submission
from edl_proto.errors import EdlError, ErrorCode

Columns = tuple[str, ...] | None
"""The names of columns; None for tf.Examples, which have none."""

_TRAINING = "the training data"
_SHOWN = 5


def check(job: Submission) -> None:
    """Check that validation data, and data of an evaluation, has the columns of the training.

    Files in a store are left to the job's master, as this machine may lack the credentials.

    Raises:
        EdlError: SHAPE_MISMATCH.
    """
    if job.verb is Verb.EVALUATE:
        described = _describe_training(job.trained_model)
        if described is not None:
            _compare(described["columns"], _columns(job.data, job.data_format, "--data"))
    elif job.validation_data:
        first = next(_columns(job.data, job.data_format, "--data"), None)
        if first is not None:
            found = _columns(job.validation_data, job.data_format, "--validation-data")
            _compare(first[1], found)


def _compare(known: Columns, files: Iterator[tuple[str, Columns]]) -> None:
    forms = {True: "rows of CSV", False: "tf.Examples"}
    for file, columns in files:
        if (columns is None) != (known is None):
            found, was = forms[columns is not None], forms[known is not None]
            what = f"its records are {found}, those of {_TRAINING} are {was}"
            remedy = "Convert the data in the same way."
        elif missing := [repr(name) for name in known or () if name not in (columns or ())]:
            what = f"it lacks column{'s'[: len(missing) > 1]} {', '.join(missing[:_SHOWN])}"
            what += f" of {_TRAINING}"
            extra = [repr(name) for name in columns or () if name not in (known or ())]
            remedy = f"Use data with the columns of {_TRAINING}."
            if extra:
                remedy += (
                    f" It has {', '.join(extra[:_SHOWN])} instead: rename what means the same."
                )
        else:
            continue
        raise EdlError(ErrorCode.SHAPE_MISMATCH, f"{file}: {what}", where=file, remedy=remedy)


def _columns(patterns: Sequence[str], form: str, option: str) -> Iterator[tuple[str, Columns]]:
    """Yield each file of this machine with its columns.

    A file that cannot be read is left out, and so is one whose records have no known fields.
    """
    for pattern in patterns:
        for file in data_files.expand(pattern, option):
            if scheme(file) or not data_files.readable_size(file, option):
                continue
            with suppress(recordio.RecordError):
                source = recordio.open_source(file, format=form or None)
                records = () if source.columns else source.read(0, 1)
                if source.columns or any(map(recordio.example.decode, records)):
                    yield file, source.columns


def _describe_training(folder: str) -> dict[str, Columns] | None:
    """Return the columns of the data that a model was trained on; None if nothing is known."""
    try:
        described = json.loads(trained_models.read(folder).data)
        names = tuple(str(name) for name, _, _, always in described["fields"] if always)
        return {"columns": names if described["form"] == "table" else None}
    except (ValueError, KeyError, TypeError):
        return None
