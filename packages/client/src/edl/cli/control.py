"""``edl wait``, ``scale``, ``set`` and ``stop``."""

from __future__ import annotations

import time

import click

from edl import codec
from edl.app import job_catalog
from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import argument, command, option
from edl.cli.completion import job_names
from edl.cli.continuation import write_model
from edl.cli.output import (
    errors_as_output,
    name_argument,
    output_option,
    print_result,
    quiet_option,
)
from edl.core.job_result import of_status
from edl.core.job_status import JobState, JobStatus
from edl.core.options.value_types import RateSetting, Workers
from edl.core.problem import usage
from edl.core.quantities import parse_duration
from edl.ports.job_backend import JobBackend, LearningRate
from edl.render import terminal
from edl.render.errors import show
from edl.render.job_text import summary
from edl.render.line_display import SilentDisplay
from edl.render.output_format import Format
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_watcher import JobWatcher, change
from edl_proto.errors import EdlError, ErrorCode

_POLL_S = 0.25


@command("wait", examples="edl wait my-job\nedl wait first second --timeout 2h -o json")
@argument(
    "names",
    nargs=-1,
    required=True,
    metavar="NAME...",
    help="Names of jobs.",
    shell_complete=job_names,
)
@option("--timeout", metavar="DURATION", help="Wait no longer than this; the jobs continue.")
@output_option
@quiet_option
@finds_jobs
def wait(
    names: tuple[str, ...], timeout: str | None, output_format: Format | None, quiet: bool
) -> None:
    """Wait for the end of jobs. Exits with the code of the first job that did not succeed."""
    with errors_as_output(output_format):
        catalog = job_catalog()
        timeout_s = read_duration("--timeout", timeout, "2h")
        ends = _await_ends(catalog, list(dict.fromkeys(names)), timeout_s)
        results = [of_status(status).to_dict() for status in ends]
        if not quiet:
            for status in ends:
                known = catalog.recorded_status(status.job)
                lines = summary(status, known.keep_page_s, known.page_link())
                terminal.message("\n".join(lines))
        print_result(
            results[0] if len(results) == 1 else results,
            output_format,
            [f"{status.job} {status.state.words}" for status in ends],
            names,
        )
        codes = [show(codec.error_of(status.failure)) for status in ends if status.failure]
        if codes:
            raise click.exceptions.Exit(codes[0])


def read_duration(flag: str, text: str | None, example: str) -> float | None:
    """Return the seconds that the value of an option means; None if it is not given.

    Raises:
        Problem: USAGE.
    """
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise usage(
            f"{flag}: {error}", where=flag, remedy=f"For example: {flag} {example}"
        ) from None


def _await_ends(catalog: JobCatalog, names: list[str], timeout_s: float | None) -> list[JobStatus]:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    ends: dict[str, JobStatus] = {}
    while True:
        for name in names:
            if name in ends:
                continue
            backend = catalog.find(name)
            report = backend.status(name, ask=False)
            if report.is_over:
                ends[name] = backend.finalize(name, report.status)
        if len(ends) == len(names):
            return [ends[name] for name in names]
        if deadline is not None and time.monotonic() > deadline:
            left = [name for name in names if name not in ends]
            raise EdlError(
                ErrorCode.TIMED_OUT,
                f"these jobs did not end in time: {', '.join(left)}",
                where="--timeout",
                remedy=f"The jobs continue; edl status {left[0]} shows its progress.",
            )
        time.sleep(_POLL_S)


@command("scale", examples="edl scale my-job --workers 4\nedl scale my-job --workers 1:8")
@name_argument
@option(
    "--workers",
    "--num-workers",
    required=True,
    metavar="N|MIN:MAX",
    help="Number of workers, or a range.",
)
@output_option
@finds_jobs
def scale(name: str, workers: str, output_format: Format | None) -> None:
    """Change the number of workers of a running job. Workers that leave return their tasks."""
    with errors_as_output(output_format):
        try:
            wanted = Workers().read(workers)
        except ValueError as error:
            raise usage(
                f"--workers: {error}", where="--workers", remedy="For example: --workers 1:4"
            ) from None
        now = change(job_catalog().find(name), name, wanted, terminal.message)
        print_result(
            {"job": name, "workers": {"min": now.min, "max": now.max}},
            output_format,
            [f"{name}: {now} {'worker' if now.max == 1 else 'workers'}"],
            [name],
        )


@command("set", examples="edl set my-job learning-rate=0.0001")
@name_argument
@argument("assignment", metavar="learning-rate=RATE", help="What to change.")
@output_option
@finds_jobs
def set_option(name: str, assignment: str, output_format: Format | None) -> None:
    """Change the learning rate of a running job, if its optimizer has a constant one.

    All updates from now on have the new rate; with --local-steps, all tasks that begin from now on.
    """
    with errors_as_output(output_format):
        rate = _read_rate(name, assignment)
        change(job_catalog().find(name), name, LearningRate(rate), terminal.message)
        print_result(
            {"job": name, "learning_rate": rate},
            output_format,
            [f"{name}: learning rate {rate:g}"],
            [name],
        )


def _read_rate(name: str, assignment: str) -> float:
    try:
        return RateSetting().read(assignment)
    except ValueError as error:
        raise usage(
            f"edl set: {error}",
            where=assignment,
            remedy=f"For example: edl set {name} learning-rate=0.0001; edl scale changes the "
            "workers.",
        ) from None


@command("stop", examples="edl stop my-job\nedl stop my-job --export\nedl stop my-job --now")
@name_argument
@option("--now", is_flag=True, help="End its processes at once, without returning tasks.")
@option("--export", is_flag=True, help="Then write its model as it is: edl export NAME.")
@option(
    "--reason", default="edl stop", metavar="TEXT", help="Reason to record in the job's events."
)
@output_option
@finds_jobs
def stop(name: str, now: bool, export: bool, reason: str, output_format: Format | None) -> None:
    """Stop a job. Workers return their tasks; its state stays, and edl resume continues it.

    On Kubernetes, edl resume continues only a job that was stopped with --now or before it began.
    """
    with errors_as_output(output_format):
        catalog = job_catalog()
        backend = catalog.find(name)
        before = backend.status(name, ask=False)
        status = end(backend, name, reason, now=now)
        over = "is over already: " if before.is_over else ""
        over = "was " if status.state is JobState.NOT_STARTED else over
        lines = [f"{name} {over}{status.state.words}"]
        if export and status.state is not JobState.SUCCEEDED:
            terminal.message(lines[0])
            write_model(catalog, name, "", output_format, quiet=False)
            return
        if (steps := backend.continuation.next_steps(status)) and output_format is None:
            terminal.message(steps)
        print_result(of_status(status).to_dict(), output_format, lines, [name])


def end(backend: JobBackend, name: str, reason: str, *, now: bool = False) -> JobStatus:
    """Stop a job and wait for its end; harmless if it is over."""
    if now:
        backend.stop(name, reason, now=True)
    report = backend.status(name, ask=False)
    if report.status.state is JobState.NOT_STARTED:
        return report.status  # nothing of it was lost
    if report.is_over:
        return backend.finalize(name, report.status)
    watcher = JobWatcher(backend, name, SilentDisplay(terminal.message))
    watcher.stop(reason)
    return watcher.run()
