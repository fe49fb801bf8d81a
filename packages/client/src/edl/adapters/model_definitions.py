"""Finds what a training job would be refused for by its first worker, in the texts of its model."""

from __future__ import annotations

from pathlib import Path

from edl.adapters.model_zoo import parameters_of, place_of, source_of
from edl.core.monitored_values import find_validation_monitor
from edl.core.submission import Submission
from edl.core.suggestions import did_you_mean
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model import model_params

_REPLACEMENTS = ("input_fn", "dataset_fn", "loss", "optimizer", "eval_metrics_fn")
_NONE = "This model file takes no parameters."
_ANY = ("hp",)
"""Parameters of a model that take values by any name."""


def check(job: Submission) -> None:
    """Check ``--params`` and the callbacks of a job whose zoo is a folder.

    What the texts do not show is left to the worker.

    Raises:
        EdlError: UNKNOWN_PARAMETER, or MODEL_CONTRACT.
    """
    zoo = Path(job.model_zoo)
    if not any(getattr(job, option) for option in _REPLACEMENTS):
        _check_params(job, zoo)
    if not job.validation_data and not job.window:
        _check_monitors(job, zoo)


def _check_params(job: Submission, zoo: Path) -> None:
    try:
        names = list(model_params.parse_params(job.params))
    except model_params.ParamsError:
        return  # the worker says where
    known = parameters_of(zoo, job.model_def) if names else None
    if known is None or any(each in known for each in _ANY):
        return
    for name in names:
        if name not in known:
            meant = model_params.find_abbreviation(name, list(known))
            raise EdlError(
                ErrorCode.UNKNOWN_PARAMETER,
                f"nothing in the model file takes the parameter {name}",
                where=f"--params, {name}",
                remedy=did_you_mean(name, known)
                or (f"Did you mean {meant[0]}?" if meant else "")
                or (f"Use one of: {', '.join(known)}." if known else _NONE),
            )


def _check_monitors(job: Submission, zoo: Path) -> None:
    text, _ = source_of(zoo, job.model_def)
    try:
        found = find_validation_monitor(text)
    except (SyntaxError, ValueError):
        return
    if found is not None:
        line, kind, monitored = found
        raise EdlError(
            ErrorCode.MODEL_CONTRACT,
            f"{kind} monitors {monitored!r}, and the job has no validation data",
            where=f"{place_of(zoo, job.model_def)}:{line}, callbacks",
            remedy='Give the job --validation-data, or write monitor="loss".',
        )
