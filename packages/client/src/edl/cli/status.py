"""``edl list``, ``status``, ``top`` and ``dashboard``."""

from __future__ import annotations

import sys
import time

import click

from edl.app import job_catalog, open_in_browser
from edl.cli.cluster_flags import CLUSTER_SECTION, finds_jobs
from edl.cli.commands import argument, command, option
from edl.cli.completion import job_names
from edl.cli.output import errors_as_output, name_argument, output_option, print_result
from edl.cli.plugin_commands import CommandTable
from edl.codec import failure_of
from edl.core.job_result import of_status, unreadable
from edl.core.problem import usage
from edl.render import terminal
from edl.render.job_text import (
    JOB_COLUMNS,
    JOB_COLUMNS_WIDE,
    failure_lines,
    job_row,
    outcome,
    status_lines,
    unreadable_row,
)
from edl.render.output_format import Format
from edl.render.table import table
from edl_proto.errors import EdlError, ErrorCode

_TOP_EVERY_S = 1.0


@command("list", examples="edl list\nedl list --running\nedl list -o json")
@output_option
@option("--running", is_flag=True, help="List only jobs that are not over.")
@option(
    "--all-namespaces",
    "-A",
    is_flag=True,
    help="List the jobs of all namespaces, as NAMESPACE/NAME.",
    section=CLUSTER_SECTION,
)
@finds_jobs
def list_jobs(output_format: Format | None, running: bool, all_namespaces: bool) -> None:
    """List all jobs, newest first."""
    with errors_as_output(output_format):
        catalog = job_catalog()
        wide = output_format is Format.WIDE
        found, rows = [], []
        for name in catalog.names():
            try:
                status = catalog.recorded_status(name).status
            except EdlError as error:
                if error.code == ErrorCode.JOB_NOT_FOUND:
                    continue  # deleted meanwhile
                terminal.warning(str(error))
                if not running:
                    found.append(unreadable(name, failure_of(error)))
                    rows.append(unreadable_row(name, wide))
                continue
            if not running or not status.state.is_over:
                found.append(of_status(status))
                rows.append(job_row(status, wide))
        if not found and output_format in (None, Format.WIDE):
            terminal.message(f"no jobs in {catalog.location}")
            return
        print_result(
            [result.to_dict() for result in found],
            output_format,
            table(JOB_COLUMNS_WIDE if wide else JOB_COLUMNS, rows),
            [result.job for result in found],
        )


@command("status", examples="edl status my-job\nedl status my-job -o json")
@name_argument
@output_option
@finds_jobs
def show_status(name: str, output_format: Format | None) -> None:
    """Show a job: progress, metrics, workers, and the error if it failed."""
    with errors_as_output(output_format):
        report = job_catalog().find(name).status(name)
        status = report.status
        lines = status_lines(status, report.page_link())
        if output_format is Format.WIDE:
            lines += ["", *(f"  {key:<18}{value}" for key, value in outcome(status, wide=True))]
        if status.failure is not None:
            lines += ["", *(f"  {line}" for line in failure_lines(status.failure))]
        print_result(report.details(), output_format, lines, [name])


@command("top", examples="edl top my-job")
@name_argument
@finds_jobs
def top(name: str) -> None:
    """Show a job and its workers until its end; only once if stdout is no terminal."""
    backend = job_catalog().find(name)
    status = backend.status(name).status
    if not terminal.may_animate(sys.stdout):
        terminal.result("\n".join(status_lines(status)))
        return
    from rich.live import Live

    with Live(console=terminal.console(sys.stdout), auto_refresh=False) as live:
        while True:
            live.update(terminal.style_text("\n".join(status_lines(status))), refresh=True)
            if status.state.is_over:
                return
            time.sleep(_TOP_EVERY_S)
            status = backend.status(name).status


@command(
    "dashboard",
    examples="edl dashboard my-job\nedl dashboard my-job --open --port 8080\nedl dashboard --all",
)
@argument("name", default="", metavar="NAME", help="Name of a job.", shell_complete=job_names)
@output_option
@option("every_job", "--all", is_flag=True, help="Serve one page with all jobs, until Ctrl-C.")
@option(
    "--prometheus",
    is_flag=True,
    help="With --all: start Prometheus to read the metrics of all jobs. "
    "All users of this machine can query it.",
)
@option("open_", "--open", is_flag=True, help="Open the page in the web browser.")
@option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=0,
    metavar="N",
    help="Port for the page of a finished job, or of all jobs; 0 for any free port.",
)
@finds_jobs
def dashboard(
    name: str,
    output_format: Format | None,
    every_job: bool,
    prometheus: bool,
    open_: bool,
    port: int,
) -> None:
    """Print a link that opens a job's page once. That of a finished job is served until Ctrl-C."""
    with errors_as_output(output_format):
        if every_job == bool(name):
            raise usage(
                "edl dashboard takes the name of a job, or --all",
                where="edl dashboard",
                remedy="For example: edl dashboard my-job; edl list shows all jobs.",
            )
        if prometheus and not every_job:
            raise usage("--prometheus needs --all", where="--prometheus", remedy="Add --all.")
        if every_job:
            serve_all = CommandTable({}, "dashboard")["all"].load()
            click.get_current_context().invoke(
                serve_all,
                output_format=output_format,
                prometheus=prometheus,
                open_=open_,
                port=port,
            )
            return

        def show(url: str) -> None:
            print_result({"job": name, "dashboard_url": url}, output_format, [url], [name])
            sys.stdout.flush()
            if open_:
                open_in_browser(url)

        catalog = job_catalog()
        try:
            backend = catalog.find(name)
            report = backend.status(name, ask=False)
            if report.dashboard_url:
                show(report.page_link())
                return
            with backend.serve_page(name, port) as page:
                show(page.url)
                terminal.message(f"{name} {report.status.state.words}; Ctrl-C closes the page")
                page.wait()
        except KeyboardInterrupt:
            return
