"""``edl dashboard --all``."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import ExitStack

import click

from edl.plugins.commands import (
    Format,
    command,
    errors_as_output,
    option,
    output_option,
    print_result,
    show,
    terminal,
)
from edl.plugins.jobs import job_catalog, open_in_browser
from edl_runtime.local import job_directory
from edl_watch.fleet import Fleet, repeat_in_thread
from edl_watch.fleet_server import FleetServer
from edl_watch.prometheus import Prometheus

_EVERY_S = 2.0


@command("all", examples="edl dashboard --all --open")
@output_option
@option("--prometheus", is_flag=True, help="Start Prometheus to read the metrics of all jobs.")
@option("open_", "--open", is_flag=True, help="Open the page in the web browser.")
@option("--port", type=click.IntRange(min=0, max=65535), default=0, metavar="N", help="Port.")
def serve_all(output_format: Format | None, prometheus: bool, open_: bool, port: int) -> None:
    """Serve the page of all jobs until Ctrl-C."""
    # As with Ctrl-C, no Prometheus is left behind; nohup has SIGHUP ignored.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    catalog = job_catalog()
    try:
        with errors_as_output(output_format), ExitStack() as opened:
            fleet = opened.enter_context(Fleet(catalog))
            metrics = None
            if prometheus:
                folder = job_directory.home() / "prometheus"
                metrics = opened.enter_context(Prometheus(folder))
                terminal.message(f"Prometheus: {metrics.url}")

            def refresh() -> None:
                fleet.refresh()
                if metrics is not None:
                    metrics.follow_jobs(fleet.reports)

            opened.enter_context(repeat_in_thread(refresh, _EVERY_S, show))
            page = opened.enter_context(
                FleetServer(lambda: [job.to_dict() for job in fleet.jobs], fleet.page_link, port)
            )
            url = page.link()
            print_result({"job": "", "dashboard_url": url}, output_format, [url], [url])
            sys.stdout.flush()
            if open_:
                open_in_browser(url)
            terminal.message("the page of all jobs; Ctrl-C closes it")
            threading.Event().wait()
    except KeyboardInterrupt:
        return
