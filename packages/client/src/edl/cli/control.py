"""``edl wait``, ``scale``, ``stop`` and ``delete``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from edl.cli.commands import CONTEXT, EdlCommand
from edl.cli.output import Name, NoInput, Output, Quiet, put, reporting

if TYPE_CHECKING:
    from edl.adapters.job_store import JobStore
    from edl.adapters.master_client import MasterClient
    from edl.core.job_status import JobStatus

app = typer.Typer(rich_markup_mode=None, context_settings=CONTEXT)

_POLL_S = 0.25
_GRACE_S = 5.0


@app.command(cls=EdlCommand, epilog="edl wait my-job\nedl wait first second --timeout 2h -o json")
def wait(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of jobs.")],
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="Wait no longer; the jobs go on."),
    ] = None,
    output_format: Output = None,
    quiet: Quiet = False,
) -> None:
    """Wait for the end of jobs. The exit code is that of the first one that did not succeed."""
    with reporting(output_format):
        from edl import codec
        from edl.adapters.job_store import JobStore
        from edl.core.job_result import of_status
        from edl.render import terminal
        from edl.render.errors import show
        from edl.render.job_text import summary

        store = JobStore()
        ends = _await_ends(store, list(dict.fromkeys(names)), _seconds(timeout))
        results = [of_status(status).to_dict() for status in ends]
        if not quiet:
            for status in ends:
                kept_s = store.read(status.job).spec.serving.keep_page_s
                terminal.message("\n".join(summary(status, kept_s)))
        put(
            results[0] if len(results) == 1 else results,
            output_format,
            [f"{status.job} {status.state.words}" for status in ends],
            names,
        )
        codes = [show(codec.error_of(status.failure)) for status in ends if status.failure]
        if codes:
            raise typer.Exit(codes[0])


def _seconds(timeout: str | None) -> float | None:
    from edl.core.problem import usage
    from edl.core.quantities import parse_duration

    try:
        return None if timeout is None else parse_duration(timeout)
    except ValueError as error:
        raise usage(f"--timeout: {error}", where="--timeout") from None


def _await_ends(store: JobStore, names: list[str], timeout_s: float | None) -> list[JobStatus]:
    from dataclasses import replace

    from edl.core.job_status import JobState
    from edl.use_cases.job_watcher import last_word, unexplained
    from edl_proto.errors import EdlError
    from edl_proto.v1 import error_pb2

    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    ends: dict[str, JobStatus] = {}
    while True:
        for name in names:
            stored = store.read(name)
            if name not in ends and stored.is_over:
                status = last_word(store, stored.status)
                if status.state is not JobState.SUCCEEDED and status.failure is None:
                    status = replace(status, failure=unexplained(status))
                ends[name] = status
        if len(ends) == len(names):
            return [ends[name] for name in names]
        if deadline is not None and time.monotonic() > deadline:
            left = [name for name in names if name not in ends]
            raise EdlError(
                error_pb2.TIMED_OUT,
                f"not over in time: {', '.join(left)}",
                where="--timeout",
                remedy=f"The job goes on; edl status {left[0]} tells how far it is.",
            )
        time.sleep(_POLL_S)


@app.command(cls=EdlCommand, epilog="edl scale my-job --workers 4\nedl scale my-job --workers 1:8")
def scale(
    name: Name,
    workers: Annotated[
        str, typer.Option("--workers", "--num-workers", metavar="N|MIN:MAX", help="How many.")
    ],
    output_format: Output = None,
) -> None:
    """Give a running job more or fewer workers. Those that leave hand their work back."""
    with reporting(output_format):
        from edl.adapters.job_store import JobStore
        from edl.core.options.kinds import Workers
        from edl.core.problem import usage

        try:
            wanted = Workers().read(workers)
        except ValueError as error:
            raise usage(
                f"--workers: {error}", where="--workers", remedy="For example: --workers 1:4"
            ) from None
        with _running(JobStore(), name) as link:
            now = link.scale(wanted)
        put(
            {"job": name, "workers": {"min": now.min, "max": now.max}},
            output_format,
            [f"{name}: {now} workers"],
            [name],
        )


@app.command(cls=EdlCommand, epilog="edl stop my-job\nedl stop my-job --now")
def stop(
    name: Name,
    now: Annotated[
        bool, typer.Option("--now", help="End its processes at once, whatever they do.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="For the job's events.")
    ] = "edl stop",
    output_format: Output = None,
) -> None:
    """End a job. Workers hand back what they hold; its state, logs and checkpoints stay."""
    with reporting(output_format):
        from edl.adapters.job_store import JobStore
        from edl.core.job_result import of_status

        status = end(JobStore(), name, reason, at_once=now)
        line = f"{name} {status.state.words}"
        put(of_status(status).to_dict(), output_format, [line], [name])


def end(store: JobStore, name: str, reason: str, *, at_once: bool = False) -> JobStatus:
    """End a job and everything that belongs to it; harmless if it is over."""
    from edl.adapters import processes
    from edl.render.line_display import Silence
    from edl.use_cases.job_watcher import JobWatcher, last_word

    stored = store.read(name)
    if at_once and stored.master is not None:
        # Each would start the next one anew: supervisor, master, workers.
        starting = store.leave_alone(name)
        processes.end([stored.master.process, *starting], 0.0)
        stored = store.read(name)
    if stored.is_over:
        return last_word(store, stored.status)
    follower = JobWatcher(store, name, Silence())
    follower.stop(reason)
    return follower.run()


@app.command(cls=EdlCommand, epilog="edl delete my-job\nedl delete my-job --stop --yes")
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    stop_first: Annotated[bool, typer.Option("--stop", help="Stop it first if it runs.")] = False,
    no_input: NoInput = False,
    output_format: Output = None,
) -> None:
    """Forget a job that is over: its state, logs and events. Its output stays."""
    with reporting(output_format):
        from edl.adapters import processes
        from edl.adapters.job_store import JobStore
        from edl.core.problem import usage
        from edl_proto.errors import EdlError
        from edl_proto.v1 import error_pb2

        store = JobStore()
        stored = store.read(name)
        if not stored.is_over and not stop_first:
            raise EdlError(
                error_pb2.JOB_EXISTS,
                f"{name} is {stored.status.state.words}; a running job is not deleted",
                where=str(stored.path),
                remedy=f"edl stop {name} first, or edl delete {name} --stop",
            )
        if not yes:
            if no_input or not sys.stdin.isatty():
                raise usage(
                    f"nobody can be asked whether to delete {name}",
                    where="edl delete",
                    remedy=f"edl delete {name} --yes",
                )
            typer.confirm(f"Forget {name}, its logs and events ({stored.path})?", abort=True)
        if not stored.is_over:
            end(store, name, "edl delete --stop")
        processes.end(store.leave_alone(name), _GRACE_S)
        # A master that only keeps its page goes with the job.
        if stored.master is not None:
            processes.end([stored.master.process], _GRACE_S)
        processes.end(store.workers(name), _GRACE_S)
        store.delete(name)
        put({"job": name, "deleted": True}, output_format, [f"{name} deleted"], [name])


def _running(store: JobStore, name: str) -> MasterClient:
    from edl.adapters.master_client import MasterClient
    from edl_proto.errors import EdlError
    from edl_proto.v1 import error_pb2

    stored = store.read(name)
    if stored.is_over or stored.master is None:
        raise EdlError(
            error_pb2.JOB_NOT_FOUND,
            f"{name} is not running: {stored.status.state.words}",
            where=str(stored.path),
            remedy="edl list --running shows the jobs that are.",
        )
    return MasterClient(stored.master.address)
