"""``edl train``, ``edl evaluate`` and ``edl predict``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click

from edl import codec
from edl.app import job_submitter, track_in_background, tracker_of
from edl.cli.commands import command
from edl.cli.option_parameters import find_given, takes
from edl.cli.output import (
    errors_as_output,
    no_input_option,
    output_option,
    print_result,
    quiet_option,
)
from edl.core import zoo_amount
from edl.core.exit_numbers import INTERRUPTED
from edl.core.job_result import JobResult, of_status
from edl.core.job_status import JobState, JobStatus
from edl.core.options import Given, Verb, options_of
from edl.ports.experiment_tracker import ExperimentTracker
from edl.ports.job_backend import JobBackend, silent
from edl.ports.model_files import Verdict
from edl.render import build_display, line_display, notebook_display, terminal
from edl.render.job_text import outcome, return_commands, summary
from edl.render.output_format import Format, dump
from edl.use_cases.image_build import BuildDisplay
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_submission import JobSubmitter, SubmissionPlan, announcement
from edl.use_cases.job_tracking import BackgroundTracking
from edl.use_cases.job_watcher import JobDisplay, JobWatcher

STOP_WINDOW_S = 2.0
"""How long a second Ctrl-C means: stop the job."""


_EXAMPLES = {
    Verb.TRAIN: """
edl train --model-zoo zoo --model-def regressor.DNN --data "train/*.recordio" --output my_model
edl train ... --num-workers 1:4 --num-epochs 10 --validation-data "test/*.recordio"
edl train ... --params "hidden_units=[10, 100, 20, 5], learning_rate=0.01" --update sync
edl train ... --set learning-rate=0.0003
edl train ... --detach -o json
""",
    Verb.EVALUATE: """
edl evaluate --trained-model my_model --data "test/*.recordio"
edl evaluate --trained-model my_model --data "test/*.recordio" --num-workers 2 -o json
""",
    Verb.PREDICT: """
edl predict --trained-model my_model --data "test/*.recordio" --output predictions
edl predict --trained-model my_model --data new.csv --keep id --postprocess argmax --output out.csv
""",
}

_ABOUT = {
    Verb.TRAIN: "Train the model of a model file, and write the trained model to a folder.",
    Verb.EVALUATE: "Evaluate a trained model on data.",
    Verb.PREDICT: "Predict with a trained model: one prediction per record, in order.",
}

_AFTER = (
    " Ctrl-C leaves the job running and says how to come back to it; a second one within"
    f" {STOP_WINDOW_S:.0f} s stops it."
)


def _make_command(verb: Verb) -> click.Command:
    """Return a command with the options that the table of options has for it."""
    options = options_of(verb)

    # These commands never ask, with or without --no-input.
    @takes(options)
    @output_option
    @quiet_option
    @no_input_option
    def run(**values: Any) -> None:
        submit(verb, find_given(options, values), values["output_format"], quiet=values["quiet"])

    run.__doc__ = _ABOUT[verb] + _AFTER
    return command(verb.value, examples=_EXAMPLES[verb])(run)


train, evaluate, predict = map(_make_command, (Verb.TRAIN, Verb.EVALUATE, Verb.PREDICT))


def submit(verb: Verb, flags: Mapping[str, Given], form: Format | None, *, quiet: bool) -> None:
    """Start a job, watch it until its end, and print the result."""
    with errors_as_output(form, lambda error: _describe_refusal(flags, error)):
        submitter = job_submitter()
        plan = submitter.prepare(verb, flags)
        tracker = tracker_of(plan.job)
        if plan.job.dry_run:
            _print_verdict(submitter.dry_run(plan), quiet=quiet)
            _put_plan(plan, submitter.manifest(plan), form)
            return
        if plan.zoo is not None and not quiet:
            terminal.message(zoo_amount.describe(plan.zoo))
        if plan.schema is not None and not quiet:
            terminal.message(f"the model gets the schema of the data, {plan.schema}")
        for warning in () if quiet else plan.warnings:
            terminal.warning(warning)
        plan = provide_image(submitter, plan, quiet=quiet)
        with interruptible():
            started = submitter.start(plan, silent if quiet else terminal.message)
        if not quiet:
            terminal.message(announcement(started, plan.job))
        if plan.job.detach:
            print_detached(
                submitter.catalog, started.name, started.dashboard_url, form, quiet=quiet
            )
            return
    backend = submitter.catalog.find(started.name)
    display = make_display(quiet)
    tracking = _track(started.name, tracker, display)
    status = follow(backend, started.name, display, form, plan.job.timeout)
    if tracking is not None:
        tracking.finish()
    finish(backend, status, form, quiet=quiet, keep_page_s=plan.job.keep_page)


def _print_verdict(verdict: Verdict, *, quiet: bool) -> None:
    for warning in verdict.warnings:
        terminal.warning(warning)
    for line in verdict.strategy_lines if not quiet else ():
        terminal.message(line)


def _track(
    name: str, tracker: ExperimentTracker | None, display: JobDisplay
) -> BackgroundTracking | None:
    return None if tracker is None else track_in_background(name, tracker, display.say)


def provide_image(submitter: JobSubmitter, plan: SubmissionPlan, *, quiet: bool) -> SubmissionPlan:
    """Provide a job's image; Ctrl-C prints what happens to the build, and no job is started."""
    with interruptible():
        return submitter.provide_image(plan, make_build_display(quiet, plan.job.build_log))


@contextmanager
def interruptible() -> Iterator[None]:
    """End the command on Ctrl-C within the context, with the notes of the interrupt."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        terminal.message("\n" + "\n".join(getattr(interrupt, "__notes__", ("interrupted",))))
        raise click.exceptions.Exit(INTERRUPTED) from None


def make_build_display(quiet: bool, every_line: bool) -> BuildDisplay:
    """Return the display for the build of an image that suits the options and the terminal."""
    if quiet:
        return build_display.SilentBuild()
    if terminal.may_animate(sys.stderr):
        return build_display.LiveBuild(every_line)
    return build_display.PlainBuild(every_line)


def follow(
    backend: JobBackend,
    name: str,
    display: JobDisplay,
    form: Format | None,
    timeout_s: float | None = None,
) -> JobStatus:
    """Watch a job until its end; the first Ctrl-C exits and leaves the job running."""
    watcher = JobWatcher(backend, name, display, timeout_s)
    try:
        return watcher.run()
    except KeyboardInterrupt:
        try:
            display.close()
            terminal.message("\n" + make_notice(name))
            if sys.stderr.isatty():
                terminal.message(
                    f"Press Ctrl-C again within {STOP_WINDOW_S:.0f} s to stop the job."
                )
                _sleep_interruptibly(STOP_WINDOW_S)
        except KeyboardInterrupt:
            terminal.message(f"\nstopping {name}")
            watcher.stop("stopped by Ctrl-C")
            return watcher.run()
        so_far = of_status(backend.status(name, ask=False).status)
        print_result(so_far.to_dict(), form, [], [name])
        raise click.exceptions.Exit(INTERRUPTED) from None
    finally:
        display.close()


def _sleep_interruptibly(seconds: float) -> None:
    """Sleep, in short parts: a signal just before a sleep begins does not interrupt that sleep."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.2))


def make_notice(name: str) -> str:
    """Return what to print when the command ends before the job does."""
    notebook = notebook_display.in_notebook()
    what = "cell" if notebook else "command"
    commands = return_commands(name, in_notebook=notebook)
    return "\n".join((f"The job {name} continues without this {what}. To come back:", *commands))


def finish(
    backend: JobBackend, status: JobStatus, form: Format | None, *, quiet: bool, keep_page_s: float
) -> None:
    """Print the result of a job, and raise its failure unless it succeeded."""
    if not quiet:
        link = backend.status(status.job, ask=False).page_link() if keep_page_s > 0 else ""
        terminal.message("\n".join(summary(status, keep_page_s, link)))
    rows = outcome(status, wide=form is Format.WIDE)
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    print_result(of_status(status).to_dict(), form, lines, [status.job])
    if status.failure is not None:
        raise codec.error_of(status.failure)


def make_display(quiet: bool) -> JobDisplay:
    """Return the display of a job that suits the options and the terminal."""
    if quiet:
        return line_display.SilentDisplay()
    if notebook_display.in_notebook():
        return notebook_display.NotebookDisplay()
    if terminal.may_animate(sys.stderr):
        from edl.render.live_display import LiveDisplay  # with rich

        return LiveDisplay()
    return line_display.PlainDisplay()


def _describe_refusal(flags: Mapping[str, Given], error: dict[str, str]) -> dict[str, Any]:
    """Return the result object of a job that could not be started."""
    name = str(flags["name"].value) if "name" in flags else ""
    return JobResult(job=name, state=JobState.NOT_STARTED.value, error=error).to_dict()


def _put_plan(plan: SubmissionPlan, manifest: Mapping[str, Any], form: Format | None) -> None:
    """Print what would be submitted, for ``--dry-run``."""
    values = dict(manifest)
    print_result(values, form, [dump(values, Format.YAML)], [plan.job.name])


def print_detached(
    catalog: JobCatalog, name: str, dashboard_url: str, form: Format | None, *, quiet: bool
) -> None:
    """Print how to come back to a job that continues without the command."""
    result = replace(of_status(catalog.recorded_status(name).status), dashboard_url=dashboard_url)
    if not quiet:
        notebook = notebook_display.in_notebook()
        terminal.message("\n".join(return_commands(name, in_notebook=notebook)))
    print_result(result.to_dict(), form, [name], [name])
