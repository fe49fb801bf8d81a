"""``edl tune``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from edl.plugins.commands import (
    Format,
    command,
    errors_as_output,
    option,
    output_option,
    print_result,
    quiet_option,
    terminal,
)
from edl.plugins.errors import Problem, error_of, usage
from edl.plugins.options import BY_NAME, Given, find_given, read_value, takes
from edl_tune.core.plan import PRUNERS, SAMPLERS, StudyPlan
from edl_tune.planning import TRIAL_OPTIONS, StudyRequest

_INTERRUPTED = 130
_STOP_WINDOW_S = 2.0

_EXAMPLES = """
edl tune --model-zoo zoo --model-def regressor.DNN --data "train/*.recordio" \\
    --validation-data test.recordio --output best --objective val_mae \\
    --search learning_rate=log:1e-4..1e-1 --search units=32,64
edl tune ... --search units=16..256/16 --search minibatch-size=32,64 --trials 50 --parallel 2
edl tune ... --pruner asha --num-epochs 20 --sampler random --seed 1
edl tune --resume regressor-dnn-3f2a --trials 60
"""


@command("tune", examples=_EXAMPLES)
@option(
    "--search",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values of a parameter of the model file, or of the option minibatch-size or"
    " learning-rate: units=32,64 or units=16..256/16 or rate=log:1e-4..1e-1. [default: what"
    " build_model(hp) asks for]",
    section="The study",
)
@option(
    "--objective",
    metavar="METRIC",
    default=None,
    help="Metric of the validation data that decides. [default: val_loss]",
    section="The study",
)
@option(
    "--direction",
    type=click.Choice(["max", "min"]),
    default=None,
    help="Which objective is better. [default: from its name, as Keras does]",
    section="The study",
)
@option(
    "--trials",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="Number of trials. [default: 20]",
    section="The study",
)
@option(
    "--parallel",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="Number of trials that run at the same time. [default: 1]",
    section="The study",
)
@option(
    "--sampler",
    type=click.Choice(SAMPLERS),
    default=None,
    help="What proposes values. [default: tpe]",
    section="The study",
)
@option(
    "--pruner",
    type=click.Choice(PRUNERS),
    default=None,
    help="What stops trials that promise little: asha keeps the best quarter at each of its"
    " stages. [default: none]",
    section="The study",
)
@option(
    "--min-epochs",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="With --pruner asha: evaluations before a trial may be stopped. [default: 1]",
    section="The study",
)
@option(
    "--timeout",
    metavar="DURATION",
    default=None,
    help="Start no further trials after this time; those that run go on to their end.",
    section="The study",
)
@option("--name", metavar="NAME", default="", help="Name of the study.", section="The study")
@option(
    "--output",
    metavar="PLACE",
    default="",
    help="Folder to write: the best model.",
    section="The study",
)
@option(
    "--resume",
    metavar="NAME",
    default="",
    help="Continue a study; --trials, --parallel and --timeout may differ.",
    section="The study",
)
@output_option
@quiet_option
@takes(TRIAL_OPTIONS)
def tune(**values: Any) -> None:
    """Search for the hyperparameters of a model: many training jobs, and the best model of them.

    Each trial is a job of its own, NAME-0000 and so on, which edl status, edl logs and edl
    dashboard show. What is interrupted goes on: the same command with --name, or --resume, takes
    over the jobs that run. Ctrl-C leaves the running trials running and starts no others; a second
    one within 2 s stops them.
    """
    form: Format | None = values["output_format"]
    with errors_as_output(form):
        try:
            _tune(values, form)
        except Problem as problem:
            raise error_of(problem) from None


def _tune(values: dict[str, Any], form: Format | None) -> None:
    flags = find_given(TRIAL_OPTIONS, values)
    request = StudyRequest(
        name=values["name"],
        output=values["output"],
        search=values["search"],
        objective=values["objective"] or "",
        direction=values["direction"],
        trials=values["trials"],
        parallel=values["parallel"],
        sampler=values["sampler"],
        pruner=values["pruner"],
        min_epochs=values["min_epochs"],
        flags=flags,
    )
    timeout_s = None
    if values["timeout"] is not None:
        timeout_s = read_value(BY_NAME["timeout"], Given(values["timeout"], "--timeout"))
    if values["resume"]:
        _check_alone(values, flags)

    from edl_tune.app import open_study

    quiet = bool(values["quiet"])
    with open_study(request, values["resume"], Path.cwd(), timeout_s, quiet=quiet) as opened:
        with _interruptible(opened.plan, opened.runner.stop_jobs):
            study = opened.runner.run()
        summary = opened.finish(study)
        print_result(summary.to_dict(), form, summary.lines, [opened.plan.name])
        summary.raise_failure()


def _check_alone(values: dict[str, Any], flags: dict[str, Given]) -> None:
    """Check that ``--resume`` has no options that the study has already."""
    of_study = ("search", "objective", "direction", "sampler", "pruner", "min_epochs", "name")
    given = [name for name in (*of_study, "output") if values[name]] + list(flags)
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise usage(
            f"a study keeps its options, so --resume cannot be combined with {flag}",
            where=flag,
            remedy="Leave it out. --trials, --parallel and --timeout may be given.",
        )


@contextmanager
def _interruptible(plan: StudyPlan, stop_jobs: Any) -> Iterator[None]:
    """End the command on Ctrl-C within the context, and say how to return; twice, stop the jobs."""
    try:
        yield
    except KeyboardInterrupt:
        back = f"To come back: edl tune --resume {plan.name}"
        try:
            terminal.message(f"\nThe trials that run go on without this command. {back}")
            if sys.stderr.isatty():
                terminal.message(
                    f"Press Ctrl-C again within {_STOP_WINDOW_S:.0f} s to stop them, too."
                )
                _sleep_interruptibly(_STOP_WINDOW_S)
        except KeyboardInterrupt:
            terminal.message(f"\nstopping the trials of {plan.name}. {back}")
            stop_jobs()
        raise click.exceptions.Exit(_INTERRUPTED) from None


def _sleep_interruptibly(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.2))
