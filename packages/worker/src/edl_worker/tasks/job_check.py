"""``edl zoo check``: reports all errors of a job's model file before any worker starts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.codec.jobs import error_as_json, parse_job
from edl_worker.core.job import JobDescription, JobType
from edl_worker.core.step_engine import Framework, ModelSummary
from edl_worker.model_file.errors import ContractErrors
from edl_worker.tasks import loaded_model
from edl_worker.tasks.label_order import warn_of_sorted_labels
from edl_worker.tasks.trial_run import run_trial

_STRATEGIES = {True: "allreduce", False: "parameter-server", None: None}


def run_check(spec_json_path: str | Path, framework: Framework) -> dict[str, Any]:
    """Return the answer of ``python -m edl_worker check --spec FILE``, ready for JSON.

    Its keys are ``ok``, ``form``, ``model`` (its name), ``parameters`` (number of trainable
    numbers; None if only data can show it), ``inputs`` (name, shape and dtype of each, or None),
    ``metrics``, ``strategy`` (of training, as ``--strategy`` names it; None if only data can show
    it), ``search_space`` (what a model function asks its ``hp`` for), ``errors``
    (``edl.v1.Error`` as JSON) and ``warnings`` (what the trained model will lack, metrics that are
    no numbers, and data sorted by label).
    """
    with contextlib.redirect_stdout(sys.stderr):  # a model file may print
        return _run_check(Path(spec_json_path), framework)


def _run_check(spec_json_path: Path, framework: Framework) -> dict[str, Any]:
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
    try:
        summary, warnings = _check(job, framework)
        space = framework.search_space(job) if job.type is JobType.TRAIN else []
    except ContractErrors as error:
        return _answer(None, error.errors)
    except EdlError as error:
        return _answer(None, [error])
    strategy = _STRATEGIES[summary.replicated] if job.type is JobType.TRAIN else None
    found = {"strategy": strategy, "search_space": space, "warnings": list(warnings)}
    return {**_answer(summary, []), **found}


def _check(job: JobDescription, framework: Framework) -> tuple[ModelSummary, tuple[str, ...]]:
    """Return what the model file of a job has, and warnings.

    With data it has done all that a worker does before it joins, and what its tasks will do.
    """
    if not job.data:
        summary = framework.check(job)
        return summary, summary.warnings
    loaded = loaded_model.load(job, {"job": job.name, "worker_id": 0, "master": ""}, framework)
    warnings = (*run_trial(loaded), *loaded.postprocess_warnings)
    if loaded.steps is not None:
        warnings += warn_of_sorted_labels(loaded.engine.source, loaded.job)
        warnings += loaded.steps.describe().warnings
        warnings += loaded.exporter.expected_warnings(traces=True)
    summary = loaded.engine.summarize()
    return summary, (*summary.warnings, *warnings)


def _answer(summary: ModelSummary | None, errors: Sequence[EdlError]) -> dict[str, Any]:
    return {
        "ok": not errors,
        "warnings": [],
        "form": summary.form if summary is not None else None,
        "model": summary.name if summary is not None else None,
        "parameters": summary.parameters if summary is not None else None,
        "inputs": summary.inputs if summary is not None else None,
        "metrics": list(summary.metrics) if summary is not None else [],
        "strategy": None,
        "search_space": [],
        "errors": [error_as_json(error) for error in errors],
    }
