"""The Python API: ``elasticdl.train``, ``evaluate`` and ``predict``.

They take the options of the command line under their Python names and return what ``-o json``
prints. A failure is an ``EdlError``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypedDict, Unpack

from edl import codec
from edl.app import Client
from edl.core.job_result import Result, of_status
from edl.core.job_status import JobState
from edl.core.options import Given, Verb, options_of
from edl.core.options.kinds import Flag, WorkerRange
from edl.render.build_display import PlainBuild, SilentBuild
from edl.render.line_display import PlainDisplay, Silence
from edl.use_cases.job_watcher import JobDisplay, JobWatcher
from edl_proto.errors import EdlError

__all__ = ["EdlError", "Result", "evaluate", "predict", "train"]

Place = str | PurePath
Duration = str | float


class _Options(TypedDict, total=False):
    data: Place | Sequence[str]
    data_format: str
    input_fn: str
    dataset_fn: str
    feature_columns: str
    minibatch_size: int
    records_per_task: int
    name: str
    num_workers: int | str | WorkerRange
    task_attempts: int
    allow_dead_letters: bool
    dashboard_port: int
    keep_page: Duration
    platform: str
    image: str
    builder: str
    repository: str
    base_image: str
    builder_ca: Place
    builder_identity: Place
    builder_config: Place
    build_network: str
    engine: str
    build_log: bool
    detach: bool
    dry_run: bool
    timeout: Duration


class TrainOptions(_Options, total=False):
    """Options of ``edl train``."""

    model_zoo: Place
    git_credential: str
    model_def: str
    params: str | dict[str, object]
    loss: str
    optimizer: str
    eval_metrics_fn: str
    label_columns: str
    validation_data: Place | Sequence[str]
    output: Place
    num_epochs: int
    update: str
    grads_to_wait: int
    max_staleness: int
    overlap: bool
    local_steps: int
    wire_precision: str
    gradient_reduction: str
    evaluation_steps: int
    embedding_threshold: int
    parameter_servers: int
    seed: int
    shuffle: bool
    init_from: Place
    checkpoint_dir: Place
    checkpoint_steps: int
    keep_checkpoints: int
    tensorboard_dir: Place


class EvaluateOptions(_Options, total=False):
    """Options of ``edl evaluate``."""

    trained_model: Place
    loss: str
    eval_metrics_fn: str
    label_columns: str


class PredictOptions(_Options, total=False):
    """Options of ``edl predict``."""

    trained_model: Place
    output: Place


def train(*, progress: bool = False, **options: Unpack[TrainOptions]) -> Result:
    """Train the model of a model file, and write the trained model to ``output``.

    Args:
        progress: write a line on stderr every few seconds.
        options: those of ``edl train``: model_zoo, model_def, data and output at least.

    Returns:
        The result; with ``detach=True`` that of a job that goes on.

    Raises:
        EdlError: a wrong option, or the job failed, was stopped or timed out.
    """
    return _run(Verb.TRAIN, options, progress)


def evaluate(*, progress: bool = False, **options: Unpack[EvaluateOptions]) -> Result:
    """Measure a trained model on data; ``result.metrics`` has the values.

    Args:
        progress: write a line on stderr every few seconds.
        options: those of ``edl evaluate``: trained_model and data at least.

    Raises:
        EdlError: a wrong option, or the job failed, was stopped or timed out.
    """
    return _run(Verb.EVALUATE, options, progress)


def predict(*, progress: bool = False, **options: Unpack[PredictOptions]) -> Result:
    """Predict with a trained model: one prediction per record, in order, in ``output``.

    Args:
        progress: write a line on stderr every few seconds.
        options: those of ``edl predict``: trained_model, data and output at least.

    Raises:
        EdlError: a wrong option, or the job failed, was stopped or timed out.
    """
    return _run(Verb.PREDICT, options, progress)


def _run(verb: Verb, options: Mapping[str, Any], progress: bool) -> Result:
    flags = {
        name: Given(value, f"{verb}({name}=...)")
        for name, value in options.items()
        if value is not None
    }
    client = Client()
    plan = client.prepare(verb, flags)
    if plan.job.dry_run:
        return Result(job=plan.job.name, state=JobState.NOT_STARTED.value)
    display: JobDisplay = PlainDisplay() if progress else Silence()
    plan = client.equip(plan, PlainBuild(plan.job.build_log) if progress else SilentBuild())
    started = client.start(plan)
    if progress:
        display.say(f"{started.name} started, page: {started.dashboard_url}")
    if plan.job.detach:
        return of_status(client.store.read(started.name).status)
    try:
        status = JobWatcher(client.store, started.name, display, plan.job.timeout).run()
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(
            f"The job {started.name} goes on; edl status {started.name} shows it,"
            f" edl stop {started.name} ends it."
        )
        raise
    if status.failure is not None:
        raise codec.error_of(status.failure)
    return of_status(status)


def _signature(verb: Verb) -> inspect.Signature:
    """All options by name, for ``help(elasticdl.train)`` and for editors."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(
            option.name,
            keyword,
            default=inspect.Parameter.empty
            if option.required
            else (option.default if isinstance(option.kind, Flag) else None),
        )
        for option in options_of(verb)
    ]
    progress = inspect.Parameter("progress", keyword, default=False)
    return inspect.Signature([*options, progress], return_annotation=Result)


_FUNCTIONS: dict[Verb, Any] = {
    Verb.TRAIN: train,
    Verb.EVALUATE: evaluate,
    Verb.PREDICT: predict,
}
for _verb, _function in _FUNCTIONS.items():
    _function.__signature__ = _signature(_verb)
