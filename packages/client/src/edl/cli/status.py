"""``edl list``, ``status``, ``top`` and ``dashboard``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edl.cli.commands import CONTEXT, EdlCommand
from edl.cli.output import Name, Output, put, reporting
from edl.render.output_format import Format

if TYPE_CHECKING:
    from edl.adapters.job_store import JobStore
    from edl.core.job_status import JobStatus

app = typer.Typer(rich_markup_mode=None, context_settings=CONTEXT)

_TOP_EVERY_S = 1.0


@app.command("list", cls=EdlCommand, epilog="edl list\nedl list --running\nedl list -o json")
def list_jobs(
    output_format: Output = None,
    running: Annotated[
        bool, typer.Option("--running", help="Only jobs that are not over.")
    ] = False,
) -> None:
    """All jobs of this machine, the newest first."""
    with reporting(output_format):
        from edl.adapters.job_store import JobStore
        from edl.core.job_result import of_status
        from edl.render import terminal
        from edl.render.job_text import JOB_COLUMNS, JOB_COLUMNS_WIDE, job_row, table
        from edl_proto.errors import EdlError

        store = JobStore()
        found = []
        for name in store.names():
            try:
                found.append(store.read(name).status)
            except EdlError as error:  # deleted meanwhile, or damaged
                terminal.warning(str(error))
        if running:
            found = [status for status in found if not status.state.is_over]
        wide = output_format is Format.WIDE
        header = JOB_COLUMNS_WIDE if wide else JOB_COLUMNS
        if not found and output_format in (None, Format.WIDE):
            terminal.message(f"no jobs in {store.root}")
            return
        put(
            [of_status(status).to_dict() for status in found],
            output_format,
            table(header, (job_row(status, wide) for status in found)),
            [status.job for status in found],
        )


@app.command(cls=EdlCommand, epilog="edl status my-job\nedl status my-job -o json")
def status(name: Name, output_format: Output = None) -> None:
    """One job: progress, metrics, workers, and the error if it failed."""
    with reporting(output_format):
        from edl import codec
        from edl.adapters.job_store import JobStore
        from edl.render.job_text import failure_lines, outcome, status_lines

        message, look = newest(JobStore(), name)
        lines = status_lines(look)
        if output_format is Format.WIDE:
            lines += ["", *(f"  {key:<18}{value}" for key, value in outcome(look, wide=True))]
        if look.failure is not None:
            lines += ["", *(f"  {line}" for line in failure_lines(look.failure))]
        values = codec.to_dict(message)
        values["state"] = look.state.value
        put(values, output_format, lines, [name])


def newest(store: JobStore, name: str) -> tuple[Any, JobStatus]:
    """The newest look at a job: from its master if that answers, else what it wrote last.

    Returns:
        The JobStatus message, and the same decoded with the state that follows from what
        is left of the master.
    """
    from edl import codec
    from edl.adapters.master_client import MasterClient, MasterUnreachable

    stored = store.read(name)
    if stored.master is not None and stored.master_is_alive:
        try:
            with MasterClient(stored.master.address) as link:
                message = link.status_message()
                return message, codec.decode_status(message)
        except MasterUnreachable:
            stored = store.read(name)
    return store.status_message(name, stored.spec), stored.status


@app.command(cls=EdlCommand, epilog="edl top my-job")
def top(name: Name) -> None:
    """The workers of a job, live until its end; once, where nothing can be redrawn."""
    from edl.adapters.job_store import JobStore
    from edl.render import terminal
    from edl.render.job_text import status_lines

    store = JobStore()
    _, look = newest(store, name)
    if not terminal.may_animate(sys.stdout):
        terminal.result("\n".join(status_lines(look)))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            live.update(Text("\n".join(status_lines(look))), refresh=True)
            if look.state.is_over:
                return
            time.sleep(_TOP_EVERY_S)
            _, look = newest(store, name)


@app.command(cls=EdlCommand, epilog="edl dashboard my-job\nedl dashboard my-job --open --port 8080")
def dashboard(
    name: Name,
    output_format: Output = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the web browser.")] = False,
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=65535, help="For a job that is over."),
    ] = 0,
) -> None:
    """The URL of a job's page. That of a job that is over is served until Ctrl-C."""
    with reporting(output_format):
        from edl.adapters.dashboard_viewer import viewer
        from edl.adapters.job_store import JobStore
        from edl.render import terminal

        stored = JobStore().read(name)

        def show(url: str) -> None:
            put({"job": name, "dashboard_url": url}, output_format, [url], [name])
            sys.stdout.flush()
            if open_:
                import webbrowser

                webbrowser.open(url)

        kept = not stored.is_over or stored.spec.serving.keep_page_s > 0
        # A master whose job is over may live a moment longer than its page.
        if kept and stored.master is not None and stored.master_is_alive:
            show(stored.master.dashboard_url)
            return
        try:
            with viewer(stored.path, port) as (url, process):
                show(url)
                terminal.message(f"{name} {stored.status.state.words}; Ctrl-C closes the page")
                process.wait()  # for as long as somebody looks at the page
        except KeyboardInterrupt:
            return
