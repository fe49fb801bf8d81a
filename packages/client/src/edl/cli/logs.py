"""``edl logs`` and ``edl events``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import CONTEXT, EdlCommand
from edl.cli.output import Name, Output, reporting
from edl.render.output_format import Format

if TYPE_CHECKING:
    from edl.core.job_status import JobEvent

app = typer.Typer(rich_markup_mode=None, context_settings=CONTEXT)

_POLL_S = 0.25
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job is over.")]


@app.command(
    cls=EdlCommand,
    epilog="edl logs my-job\nedl logs -f my-job\nedl logs my-job --worker 1 --tail 50",
)
@finds_jobs
def logs(
    name: Name,
    follow: Follow = False,
    worker: Annotated[
        int | None,
        typer.Option("--worker", min=0, metavar="N", help="Show only the log of this worker."),
    ] = None,
    master: Annotated[bool, typer.Option("--master", help="Show only the master's log.")] = False,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail", min=0, metavar="LINES", help="Show only the last lines of each log."
        ),
    ] = None,
) -> None:
    """Show the logs of a job's processes. Lines of several begin with the process's name."""
    from edl.app import job_catalog
    from edl.core.problem import usage
    from edl.render import terminal
    from edl_proto.errors import EdlError, ErrorCode

    if master and worker is not None:
        raise usage("--master and --worker cannot be combined", remedy="Leave one out.")
    backend = job_catalog().find(name)
    logs = backend.logs(name, master=master, worker=worker, tail=tail)
    if worker is not None and not follow and worker not in logs.workers():
        known = ", ".join(str(number) for number in logs.workers()) or "none"
        raise EdlError(
            ErrorCode.WORKER_NOT_FOUND,
            f"{name} has no log of a worker {worker}",
            where=backend.status(name, ask=False).location,
            remedy=f"Workers with a log: {known}.",
        )
    single = master or worker is not None
    while True:
        over = not follow or backend.status(name, ask=False).is_over
        for line in logs.poll(final=over):
            terminal.result(line.text if single else f"[{line.source}] {line.text}")
        if over:
            return
        time.sleep(_POLL_S)


@app.command(
    cls=EdlCommand, epilog="edl events my-job\nedl events -f my-job\nedl events my-job -o json"
)
@finds_jobs
def events(name: Name, follow: Follow = False, output_format: Output = None) -> None:
    """Show a job's events, oldest first; with -o json, one object per line."""
    with reporting(output_format):
        from edl.app import job_catalog

        backend = job_catalog().find(name)
        report = backend.status(name, ask=False)
        seen = _show(backend.events(name), 0, output_format)
        while follow and not report.is_over:
            time.sleep(_POLL_S)
            report = backend.status(name, ask=False)
            seen = _show(backend.events(name, seen), seen, output_format)


def _show(found: Sequence[JobEvent], seen: int, form: Format | None) -> int:
    import json
    from dataclasses import asdict

    from edl.render import terminal
    from edl.render.job_text import event_line
    from edl.render.output_format import dump

    for event in found:
        seen = max(seen, event.number)
        match form:
            case Format.JSON:
                terminal.result(json.dumps(asdict(event), ensure_ascii=False))
            case Format.YAML:
                terminal.result(dump([asdict(event)], form))
            case Format.NAME:
                terminal.result(event.kind)
            case _:
                terminal.result(event_line(event))
    return seen
