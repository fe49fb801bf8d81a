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
from recordio.description import (
    DataDescription,
    DataField,
    Form,
    compare,
    description_from_json,
)

_TRAINING = "the training data"
_PREDICT = " An evaluation needs the labels; for rows without them: edl predict."


def check(job: Submission) -> None:
    """Check that validation data, and data of an evaluation, has the columns of the training.

    Files in a store are left to the job's master, as this machine may lack the credentials.

    Raises:
        EdlError: SHAPE_MISMATCH.
    """
    if job.verb is Verb.EVALUATE:
        known = _describe_training(job.trained_model)
        found = _describe(job.data, job.data_format, "--data")
    elif job.validation_data:
        _, known = next(_describe(job.data, job.data_format, "--data"), ("", None))
        found = _describe(job.validation_data, job.data_format, "--validation-data")
    else:
        return
    if known is None:
        return
    for file, described in found:
        if known.form is described.form is Form.EXAMPLES:
            continue  # one record does not tell which features others have
        compared = compare(known, described, _TRAINING)
        if compared.problem:
            raise EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"{file}: {compared.problem}",
                where=file,
                remedy=compared.remedy
                + (_PREDICT if job.verb is Verb.EVALUATE and "lacks" in compared.problem else ""),
            )


def _describe(
    patterns: Sequence[str], form: str, option: str
) -> Iterator[tuple[str, DataDescription]]:
    """Yield each file of this machine with the names of its columns, or that it has none.

    A file that cannot be read is left out, and so is one whose records have no known fields.
    """
    for pattern in patterns:
        for file in data_files.expand(pattern, option):
            if scheme(file) or not data_files.readable_size(file, option):
                continue
            with suppress(recordio.RecordError):
                source = recordio.open_source(file, format=form or None)
                if source.columns:
                    fields = tuple(DataField(name, "") for name in source.columns)
                    yield file, DataDescription(Form.TABLE, fields)
                elif any(map(recordio.example.decode, source.read(0, 1))):
                    yield file, DataDescription(Form.EXAMPLES, ())


def _describe_training(folder: str) -> DataDescription | None:
    """Return the data that a model was trained on; None if nothing is known."""
    try:
        return description_from_json(json.loads(trained_models.read(folder).data))
    except (ValueError, KeyError, TypeError):
        return None
