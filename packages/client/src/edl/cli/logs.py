"""``edl logs`` and ``edl events``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum

import click

from edl.app import job_catalog
from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import command, option
from edl.cli.output import errors_as_output, name_argument, output_option
from edl.core.job_log import JobLogLine, LogChoice, LogFilter, parse_since
from edl.core.job_status import JobEvent
from edl.core.problem import usage
from edl.render import terminal
from edl.render.job_text import event_line
from edl.render.log_text import log_line_object, log_line_parts
from edl.render.output_format import Format, dump
from edl_proto.errors import EdlError, ErrorCode

_POLL_S = 0.25


class _Role(StrEnum):
    MASTER = "master"
    WORKER = "worker"
    SERVER = "server"


class _Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Color(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@command(
    "logs",
    examples="edl logs my-job\nedl logs -f my-job\nedl logs my-job --worker 1 --tail 50\n"
    "edl logs my-job --since 15m --level warning\nedl logs my-job --json | jq .message",
)
@name_argument
@option("--follow", "-f", is_flag=True, help="Continue until the job is over.")
@option(
    "--worker", type=click.IntRange(min=0), metavar="N", help="Show only the log of this worker."
)
@option("--master", is_flag=True, help="Show only the master's log.")
@option(
    "--role",
    type=click.Choice(_Role, case_sensitive=False),
    help="Show only the logs of this role.",
)
@option(
    "--tail",
    type=click.IntRange(min=0),
    metavar="LINES",
    help="Show only the last lines of each log.",
)
@option(
    "--since",
    metavar="TIME",
    help="Show only lines since a time (UTC), or of a duration such as 15m.",
)
@option(
    "--level",
    type=click.Choice(_Level, case_sensitive=False),
    default=_Level.DEBUG.value,
    help="Show only lines of this level and above.",
)
@option(
    "--color",
    type=click.Choice(_Color, case_sensitive=False),
    default=_Color.AUTO.value,
    help="When to use color: auto, always or never.",
)
@option("as_json", "--json", is_flag=True, help="Print one object for each line.")
@finds_jobs
def logs(  # noqa: PLR0913  (the parameters are the options of the command)
    name: str,
    follow: bool,
    worker: int | None,
    master: bool,
    role: _Role | None,
    tail: int | None,
    since: str | None,
    level: _Level,
    color: _Color,
    as_json: bool,
) -> None:
    """Show the logs of a job's processes by time (UTC). Lines of several begin with the process.

    A line without a level, as a library prints it, has that of the line before it.
    """
    choice = _choice(worker, master, role, tail)
    wanted = LogFilter(_since(since), level.upper())
    backend = job_catalog().find(name)
    logs = backend.logs(name, choice)
    if worker is not None and not follow and worker not in logs.workers():
        known = ", ".join(str(number) for number in logs.workers()) or "none"
        raise EdlError(
            ErrorCode.WORKER_NOT_FOUND,
            f"{name} has no log of a worker {worker}",
            where=backend.status(name, ask=False).location,
            remedy=f"Workers with a log: {known}.",
        )
    show = _printer(name, choice, color, as_json)
    while True:
        over = not follow or backend.status(name, ask=False).is_over
        for line in logs.poll(final=over):
            if wanted.shows(line):
                show(line)
        if over:
            return
        time.sleep(_POLL_S)


def _choice(worker: int | None, master: bool, role: _Role | None, tail: int | None) -> LogChoice:
    given = {"--master": master, "--role": role is not None, "--worker": worker is not None}
    if len(both := [name for name, is_given in given.items() if is_given]) > 1:
        raise usage(f"{both[0]} and {both[1]} cannot be combined", remedy="Leave one out.")
    return LogChoice(_Role.MASTER if master else role or "", worker, tail)


def _since(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        return parse_since(text, time.time())
    except ValueError as error:
        raise usage(f"--since: {error}", remedy="Correct the value.") from None


def _printer(
    name: str, choice: LogChoice, color: _Color, as_json: bool
) -> Callable[[JobLogLine], None]:
    if as_json:
        return lambda line: terminal.result(
            json.dumps(log_line_object(line, name), ensure_ascii=False)
        )
    colored = color is _Color.ALWAYS or (color is _Color.AUTO and terminal.may_color(sys.stdout))
    single = choice.role == _Role.MASTER or choice.worker is not None
    return lambda line: terminal.result(*log_line_parts(line, single=single), colored=colored)


@command("events", examples="edl events my-job\nedl events -f my-job\nedl events my-job -o json")
@name_argument
@option("--follow", "-f", is_flag=True, help="Continue until the job is over.")
@output_option
@finds_jobs
def events(name: str, follow: bool, output_format: Format | None) -> None:
    """Show a job's events, oldest first; with -o json, one object per line."""
    with errors_as_output(output_format):
        backend = job_catalog().find(name)
        report = backend.status(name, ask=False)
        seen = _show(backend.events(name), 0, output_format)
        while follow and not report.is_over:
            time.sleep(_POLL_S)
            report = backend.status(name, ask=False)
            seen = _show(backend.events(name, seen), seen, output_format)


def _show(found: Sequence[JobEvent], seen: int, form: Format | None) -> int:
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
