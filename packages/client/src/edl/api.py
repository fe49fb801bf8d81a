"""The Python API: ``elasticdl.train``, ``evaluate``, ``predict``, ``resume`` and ``export``.

The first three take the options of the command line under their Python names, and return the result
that ``-o json`` prints. A failure raises an ``EdlError``, of a class of ``edl.api_errors``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, Unpack, get_type_hints

from edl import codec
from edl.api_errors import for_python
from edl.app import job_catalog, job_submitter, model_zoos, track_in_background, tracker_of
from edl.core.job_result import JobResult, of_status
from edl.core.job_status import JobState, JobStatus
from edl.core.options import Given, Verb, options_of
from edl.core.options.python_types import EvaluateOptions, PredictOptions, TrainOptions
from edl.core.options.value_types import Flag
from edl.core.problem import usage
from edl.ports.job_backend import JobBackend
from edl.render.build_display import PlainBuild, SilentBuild
from edl.render.line_display import PlainDisplay, SilentDisplay
from edl.render.notebook_display import NotebookDisplay, command_name, in_notebook
from edl.use_cases.job_resumption import resume_job
from edl.use_cases.job_submission import JobSubmitter, announcement
from edl.use_cases.job_tracking import BackgroundTracking
from edl.use_cases.job_watcher import JobDisplay, JobWatcher
from edl.use_cases.model_export import export_model
from edl_proto.errors import EdlError

__all__ = ["EdlError", "JobResult", "evaluate", "export", "predict", "resume", "train"]


@for_python
def train(*, progress: bool | None = None, **options: Unpack[TrainOptions]) -> Any:
    """Train the model of a model file and write the trained model to ``output``.

    With ``model``, a Keras model or a function that returns one, and with ``dataset_fn``, it trains
    that model instead and returns a handle of the job (``edl_keras.train``).

    Args:
        progress: show it: in a notebook, where that is the default, and elsewhere as lines on
            stderr.
        options: the options of ``edl train``; model_zoo, model_def, data and output are required.

    Returns:
        A ``JobResult``; with ``detach=True`` the state of the job so far, and ``tracker`` does
        nothing: ``edl track`` sends the job later.

    Raises:
        EdlError: an option is wrong, or the job failed, was stopped or timed out.
    """
    if "model" in options:
        return _train_object({**options, "progress": progress})
    return _run(Verb.TRAIN, options, progress)


def _train_object(options: dict[str, Any]) -> Any:
    """Train a Keras model of this process, which an optional package can."""
    try:
        module = import_module("edl_keras.train")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "edl_keras":
            raise
        raise usage(
            "a model of the program needs edl-keras, which is not installed here",
            where="train(model=...)",
            remedy="pip install edl-keras. Or write the model into a file, and name its folder with"
            " --model-zoo and the file, without .py, with --model-def.",
        ) from None
    return module.train_model(**options)


@for_python
def evaluate(*, progress: bool | None = None, **options: Unpack[EvaluateOptions]) -> JobResult:
    """Measure a trained model on data; ``result.metrics`` has the values.

    Args:
        progress: show it: in a notebook, where that is the default, and elsewhere as lines on
            stderr.
        options: the options of ``edl evaluate``; trained_model and data are required.

    Raises:
        EdlError: an option is wrong, or the job failed, was stopped or timed out.
    """
    return _run(Verb.EVALUATE, options, progress)


@for_python
def predict(*, progress: bool | None = None, **options: Unpack[PredictOptions]) -> JobResult:
    """Predict with a trained model: one prediction per record, in order, in ``output``.

    Args:
        progress: show it: in a notebook, where that is the default, and elsewhere as lines on
            stderr.
        options: the options of ``edl predict``; trained_model, data and output are required.

    Raises:
        EdlError: an option is wrong, or the job failed, was stopped or timed out.
    """
    return _run(Verb.PREDICT, options, progress)


@for_python
def resume(
    name: str,
    *,
    num_epochs: int | None = None,
    code: Literal["", "job", "new"] = "",
    progress: bool | None = None,
) -> JobResult:
    """Continue a job that was stopped, has failed or was lost; a running one is only watched.

    On Kubernetes, only a job that was stopped with ``edl stop --now``, or before it began.

    Args:
        num_epochs: how many epochs it has from now on, more than before; then a job that has
            succeeded and keeps checkpoints is continued, too.
        code: if the model files have changed: continue with the code of the "job", or with the
            "new" files. By default, changed files are an error.
        progress: show it: in a notebook, where that is the default, and elsewhere as lines on
            stderr.

    Raises:
        EdlError: there is no such job, it has succeeded before, or it did not succeed this time.
    """
    display = _make_display(progress)
    with job_catalog() as catalog:
        backend = catalog.find(name)
        resume_job(backend, model_zoos(), name, display.say, num_epochs=num_epochs, code=code)
        return _watch(backend, name, display, None)


@for_python
def export(
    name: str, *, output: str = "", overwrite: bool = False, progress: bool | None = None
) -> JobResult:
    """Write the model of a job as it is in its newest snapshot; ``result.output`` has it.

    Args:
        output: folder to write; by default the output of the job.
        overwrite: replace a model that the same job has written there.
        progress: show it: in a notebook, where that is the default, and elsewhere as lines on
            stderr.

    Raises:
        EdlError: there is no such job or snapshot, the output exists, or it cannot be written.
    """
    display = _make_display(progress)
    with job_catalog() as catalog:
        return _result(export_model(catalog, name, output, display, overwrite=overwrite))


def _run(verb: Verb, options: Mapping[str, Any], progress: bool | None) -> JobResult:
    progress = in_notebook() if progress is None else progress
    flags = {
        name: Given(value, f"{verb}({name}=...)")
        for name, value in options.items()
        if value is not None
    }
    submitter = job_submitter()
    with submitter.catalog:
        return _submit(submitter, verb, flags, progress)


def _make_display(progress: bool | None) -> JobDisplay:
    if in_notebook():
        return SilentDisplay() if progress is False else NotebookDisplay()
    return PlainDisplay() if progress else SilentDisplay()


def _submit(
    submitter: JobSubmitter, verb: Verb, flags: Mapping[str, Given], progress: bool
) -> JobResult:
    plan = submitter.prepare(verb, flags)
    tracker = tracker_of(plan.job)
    if plan.job.dry_run:
        submitter.dry_run(plan)
        return JobResult(job=plan.job.name, state=JobState.NOT_STARTED.value)
    display = _make_display(progress)
    for warning in plan.warnings:
        display.say(f"warning: {warning}")
    plan = submitter.provide_image(
        plan, PlainBuild(plan.job.build_log) if progress else SilentBuild()
    )
    started = submitter.start(plan, display.say)
    if progress:
        display.say(announcement(started, plan.job))
    if plan.job.detach:
        return of_status(submitter.catalog.recorded_status(started.name).status)
    backend = submitter.catalog.find(started.name)
    tracking = track_in_background(started.name, tracker, display.say) if tracker else None
    return _watch(backend, started.name, display, plan.job.timeout, tracking)


def _watch(
    backend: JobBackend,
    name: str,
    display: JobDisplay,
    timeout_s: float | None,
    tracking: BackgroundTracking | None = None,
) -> JobResult:
    try:
        status = JobWatcher(backend, name, display, timeout_s).run()
    except KeyboardInterrupt as interrupt:
        edl = command_name()
        interrupt.add_note(
            f"The job {name} continues; {edl} status {name} shows it, {edl} stop {name} ends it."
        )
        raise
    if tracking is not None:
        tracking.finish()
    return _result(status)


def _result(status: JobStatus) -> JobResult:
    if status.failure is not None:
        raise codec.error_of(status.failure)
    return of_status(status)


def _signature(verb: Verb, types: type) -> inspect.Signature:
    """Return all options by name and type, for ``help(elasticdl.train)`` and for editors."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    annotations = get_type_hints(types)
    options = [
        inspect.Parameter(
            option.name,
            keyword,
            default=inspect.Parameter.empty
            if option.required
            else (option.default if isinstance(option.kind, Flag) else None),
            annotation=annotations[option.name],
        )
        for option in options_of(verb)
    ]
    progress = inspect.Parameter("progress", keyword, default=None, annotation=bool | None)
    return inspect.Signature([*options, progress], return_annotation=JobResult)


_FUNCTIONS: tuple[tuple[Any, Verb, type], ...] = (
    (train, Verb.TRAIN, TrainOptions),
    (evaluate, Verb.EVALUATE, EvaluateOptions),
    (predict, Verb.PREDICT, PredictOptions),
)
for _function, _verb, _types in _FUNCTIONS:
    _function.__signature__ = _signature(_verb, _types)
