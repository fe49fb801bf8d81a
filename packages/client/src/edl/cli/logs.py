"""``edl logs`` and ``edl events``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from edl.cli.commands import CONTEXT, EdlCommand
from edl.cli.output import Name, Output, reporting
from edl.render.output_format import Format

if TYPE_CHECKING:
    from edl.core.job_status import JobEvent

app = typer.Typer(rich_markup_mode=None, context_settings=CONTEXT)

_POLL_S = 0.25
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")]


@app.command(
    cls=EdlCommand,
    epilog="edl logs my-job\nedl logs -f my-job\nedl logs my-job --worker 1 --tail 50",
)
def logs(
    name: Name,
    follow: Follow = False,
    worker: Annotated[
        int | None, typer.Option("--worker", min=0, metavar="N", help="Only this worker.")
    ] = None,
    master: Annotated[bool, typer.Option("--master", help="Only the master.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="LINES", help="Only the last lines.")
    ] = None,
) -> None:
    """What the processes of a job write; each line says whose it is, unless only one is asked."""
    from edl.adapters.job_store import JobStore
    from edl.adapters.log_tail import Tail
    from edl.core.problem import usage
    from edl.render import terminal
    from edl_proto.errors import EdlError
    from edl_proto.v1 import error_pb2

    if master and worker is not None:
        raise usage("--master and --worker exclude each other", remedy="Leave one out.")
    store = JobStore()
    stored = store.read(name)
    if worker is not None and not follow and not store.log(name, worker).exists():
        known = ", ".join(str(number) for number in store.workers_with_logs(name)) or "none"
        raise EdlError(
            error_pb2.JOB_NOT_FOUND,
            f"worker {worker} of {name} has written nothing",
            where=str(store.log(name, worker)),
            remedy=f"Workers with a log: {known}.",
        )
    single = master or worker is not None
    tails: dict[str, Tail] = {}
    first = True
    while True:
        over = not follow or store.read(stored.name).is_over
        sources = {} if worker is not None else {"master": store.log(name)}
        numbers = store.workers_with_logs(name) if worker is None else [worker]
        if not master:
            sources.update({f"worker {number}": store.log(name, number) for number in numbers})
        for title, path in sources.items():
            if title not in tails:
                # Files that appear later are shown whole.
                tails[title] = Tail(path, tail if first else None)
            for line in tails[title].read(final=over):
                terminal.result(line if single else f"[{title}] {line}")
        first = False
        if over:
            return
        time.sleep(_POLL_S)


@app.command(
    cls=EdlCommand, epilog="edl events my-job\nedl events -f my-job\nedl events my-job -o json"
)
def events(name: Name, follow: Follow = False, output_format: Output = None) -> None:
    """What happened to a job, oldest first. ``-o json`` puts out one object per line."""
    with reporting(output_format):
        from edl.adapters.job_store import JobStore

        store = JobStore()
        stored = store.read(name)
        seen = _show(store.events(name), 0, output_format)
        while follow and not stored.is_over:
            time.sleep(_POLL_S)
            stored = store.read(name)
            seen = _show(store.events(name, seen), seen, output_format)


def _show(found: list[JobEvent], seen: int, form: Format | None) -> int:
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
