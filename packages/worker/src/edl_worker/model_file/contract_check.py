"""``edl zoo check``: reports all errors of a model file before any worker starts."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.codec.jobs import error_as_json, parse_job
from edl_worker.core.job import JobType, ModelReference
from edl_worker.model_file.batch import Batch
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.loader import load_model_file
from edl_worker.model_file.model_file import ModelFile
from edl_worker.model_file.sample import first_batch
from elasticdl.python.common.constants import Mode

_SAMPLE = 32
_PURPOSES = {
    JobType.TRAIN: Mode.TRAINING,
    JobType.EVALUATE: Mode.EVALUATION,
    JobType.PREDICT: Mode.PREDICTION,
}


def check_model_file(
    reference: ModelReference,
    *,
    purpose: Mode = Mode.TRAINING,
    sample: Sequence[bytes] = (),
    columns: Sequence[str] | None = None,
) -> list[EdlError]:
    """All errors of a model file; empty if it can be used.

    Args:
        purpose: what the job would do.
        sample: some records; with them shapes are checked and subclassed models are built.
        columns: names of the columns if the records are CSV rows.
    """
    try:
        model_file = load_model_file(reference, purpose=purpose)
    except ContractErrors as error:
        return list(error.errors)
    if not sample:
        return []
    records = list(sample[:_SAMPLE])

    def first() -> Batch:
        batches = model_file.batches(
            lambda: iter([records]), mode=purpose, minibatch_size=_SAMPLE, seed=0, columns=columns
        )
        return next(batches)

    return _build_errors(model_file, first)


def run_check(spec_json_path: str | Path) -> dict[str, Any]:
    """The answer of ``python -m edl_worker check --spec FILE``, ready for JSON.

    Its keys are ``ok``, ``form``, ``model`` (its name), ``parameters`` (number of trainable
    numbers; None if only data can show it), ``inputs`` (name, shape and dtype of each, or None),
    ``metrics`` and ``errors`` (``edl.v1.Error`` as JSON).
    """
    with contextlib.redirect_stdout(sys.stderr):  # a model file may print
        return _run_check(Path(spec_json_path))


def _run_check(spec_json_path: Path) -> dict[str, Any]:
    try:
        job = parse_job(spec_json_path.read_text(encoding="utf-8"))
    except EdlError as error:
        return _answer(None, [error])
    except (OSError, ValueError) as error:
        failure = EdlError(
            ErrorCode.USAGE,
            f"the job specification cannot be read: {error}",
            where=str(spec_json_path),
            remedy="Give a file with a JobSpec as JSON.",
        )
        return _answer(None, [failure])
    purpose = _PURPOSES[job.type]
    try:
        model_file = load_model_file(job.model, purpose=purpose)
    except ContractErrors as error:
        return _answer(None, error.errors)
    if not job.data:
        return _answer(model_file, [])

    def first() -> Batch:
        return first_batch(model_file, job, purpose, job.minibatch_size)

    return _answer(model_file, _build_errors(model_file, first))


def _build_errors(model_file: ModelFile, first: Callable[[], Batch]) -> list[EdlError]:
    try:
        model_file.build(first())
    except ContractErrors as error:
        return list(error.errors)
    except EdlError as error:
        return [error]
    except StopIteration:
        pass  # the input function dropped all of these records
    return []


def _answer(model_file: ModelFile | None, errors: Sequence[EdlError]) -> dict[str, Any]:
    model = model_file.model if model_file is not None else None
    parameters = None
    if model is not None and model.built:
        parameters = sum(math.prod(v.shape) for v in model.trainable_variables)
    return {
        "ok": not errors,
        "form": model_file.form if model_file is not None else None,
        "model": model.name if model is not None else None,
        "parameters": parameters,
        "inputs": model_file.inputs if model_file is not None else None,
        "metrics": list(model_file.metric_names) if model_file is not None else [],
        "errors": [error_as_json(error) for error in errors],
    }
