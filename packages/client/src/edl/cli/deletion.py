"""``edl delete``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from edl import codec
from edl.app import job_catalog
from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import argument, command, option
from edl.cli.completion import job_names
from edl.cli.control import end, read_duration
from edl.cli.output import errors_as_output, no_input_option, output_option, print_result
from edl.core.exit_numbers import DECLINED
from edl.core.job_result import error_fields
from edl.core.job_status import has_failed, is_older
from edl.core.problem import usage
from edl.ports.job_backend import JobBackend
from edl.render import terminal
from edl.render.errors import show
from edl.render.output_format import Format
from edl.use_cases.job_catalog import JobCatalog
from edl_proto.errors import EdlError, ErrorCode


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A job that can be deleted.

    Attributes:
        location: where its state is.
        must_stop: whether it runs.
    """

    name: str
    backend: JobBackend
    location: str
    must_stop: bool


@command(
    "delete",
    examples="edl delete my-job\nedl delete first second --stop --yes\n"
    "edl delete --failed --older-than 7d",
)
@argument("names", nargs=-1, metavar="[NAME]...", help="Names of jobs.", shell_complete=job_names)
@option("--failed", is_flag=True, help="Delete the jobs that failed or were lost.")
@option(
    "--older-than", metavar="DURATION", help="Delete the jobs that ended longer ago, such as 7d."
)
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@option("stop_first", "--stop", is_flag=True, help="Stop a named job first if it runs.")
@no_input_option
@output_option
@finds_jobs
def delete(
    names: tuple[str, ...],
    failed: bool,
    older_than: str | None,
    yes: bool,
    stop_first: bool,
    no_input: bool,
    output_format: Format | None,
) -> None:
    """Delete finished jobs: their state, logs and events. Their outputs stay.

    --failed and --older-than choose jobs; together, those that match both. If one job cannot be
    deleted, the others are; the exit code is that of the first error.
    """
    with errors_as_output(output_format):
        chooses = failed or older_than is not None
        if bool(names) == chooses:
            raise usage(
                "edl delete takes names of jobs, or --failed and --older-than",
                where="edl delete",
                remedy="For example: edl delete my-job, or edl delete --failed; "
                "edl list shows all jobs.",
            )
        catalog = job_catalog()
        if chooses:
            age_s = read_duration("--older-than", older_than, "7d")
            names = tuple(_choose(catalog, failed, age_s))
            if not names:
                terminal.message("no job matches")
        outcome = _Outcome()
        candidates = []
        for name in dict.fromkeys(names):
            with outcome.errors_of(name):
                candidates.append(_examine(catalog, name, stop_first))
        if candidates and not yes:
            _confirm(candidates, no_input)
        for candidate in candidates:
            with outcome.errors_of(candidate.name):
                _delete(_examine(catalog, candidate.name, stop_first))  # it may have been resumed
                outcome.deleted.append(candidate.name)
        if len(names) == 1 and not chooses and outcome.errors:
            raise outcome.errors[names[0]]
        print_result(
            outcome.rows[0] if len(names) == 1 and not chooses else outcome.rows,
            output_format,
            [f"{name} deleted" for name in outcome.deleted],
            outcome.deleted,
        )
        codes = [show(error) for error in outcome.errors.values()]
        if codes:
            raise click.exceptions.Exit(codes[0])


class _Outcome:
    """Which jobs were deleted, and why the others were not."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.errors: dict[str, EdlError] = {}

    @contextmanager
    def errors_of(self, name: str) -> Iterator[None]:
        """Keep an error within the context as that of a job, so that the others follow."""
        try:
            yield
        except EdlError as error:
            self.errors[name] = error

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The outcome as plain values."""
        return [
            *({"job": name, "deleted": True} for name in self.deleted),
            *(
                {"job": name, "deleted": False, "error": error_fields(codec.failure_of(error))}
                for name, error in self.errors.items()
            ),
        ]


def _choose(catalog: JobCatalog, failed: bool, age_s: float | None) -> Iterator[str]:
    """Yield the names of the jobs that are over and match, the newest first."""
    now_s = time.time()
    for name in catalog.names():
        try:
            status = catalog.recorded_status(name).status
        except EdlError as error:
            if error.code != ErrorCode.JOB_NOT_FOUND:  # else deleted meanwhile
                terminal.warning(str(error))
            continue
        if (not failed or has_failed(status)) and (age_s is None or is_older(status, age_s, now_s)):
            yield name


def _examine(catalog: JobCatalog, name: str, stop_first: bool) -> _Candidate:
    """Return a job as one that can be deleted.

    Raises:
        EdlError: JOB_NOT_FOUND, or JOB_EXISTS: it runs.
    """
    backend = catalog.find(name)
    try:
        report = backend.status(name, ask=False)
    except EdlError as error:
        if error.code != ErrorCode.DATA_DAMAGED:
            raise
        # Whether it is over cannot be known, but a living master is seen.
        location, state, must_stop = error.where, "running" if backend.reach(name) else "", False
    else:
        location, state = report.location, "" if report.is_over else report.status.state.words
        must_stop = bool(state)
    if state and not stop_first:
        raise EdlError(
            ErrorCode.JOB_EXISTS,
            f"{name} is {state}; only finished jobs can be deleted",
            where=location,
            remedy=f"edl stop {name} first, or edl delete {name} --stop",
        )
    return _Candidate(name, backend, location, must_stop)


def _confirm(candidates: list[_Candidate], no_input: bool) -> None:
    """Ask whether to delete these jobs.

    Raises:
        Problem: USAGE; no person can answer.
        Exit: the answer is no.
    """
    names = ", ".join(candidate.name for candidate in candidates)
    if no_input or not sys.stdin.isatty():
        raise usage(
            f"the deletion of {names} needs confirmation, but stdin is not a terminal",
            where="edl delete",
            remedy="Add --yes.",
        )
    if len(candidates) == 1:
        question = f"Delete {names}, its logs and events ({candidates[0].location})?"
    else:
        question = f"Delete {len(candidates)} jobs, their logs and events ({names})?"
    if not terminal.confirm(question):
        kept = "is kept" if len(candidates) == 1 else "are kept"
        terminal.message(f"{names} {kept}")
        raise click.exceptions.Exit(DECLINED)


def _delete(candidate: _Candidate) -> None:
    if candidate.must_stop:
        end(candidate.backend, candidate.name, "edl delete --stop")
    candidate.backend.delete(candidate.name)
