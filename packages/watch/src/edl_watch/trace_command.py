"""``edl trace``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edl.plugins.commands import (
    Format,
    command,
    errors_as_output,
    finds_jobs,
    name_argument,
    option,
    output_option,
    print_result,
)
from edl.plugins.job_status import PHASES, phase_shares
from edl.plugins.jobs import job_catalog
from edl_watch import trace_file
from edl_watch.trace import chrome_trace

_MAX_WORKERS = 20
"""Shown to people; a trace has all of them."""


@command("trace", examples="edl trace my-job\nedl trace my-job --output slow.json -o json")
@name_argument
@option(
    "--output", default="", metavar="FILE", help="File to write. Default: NAME.trace.json, here."
)
@output_option
@finds_jobs
def trace(name: str, output: str, output_format: Format | None) -> None:
    """Write what each worker did when as a trace for ui.perfetto.dev, and show where time went."""
    with errors_as_output(output_format):
        backend = job_catalog().find(name)
        path = Path(output or f"{name.replace('/', '-')}.trace.json")
        trace_file.check_trace(output or str(path), name)
        spans = backend.timelines.read(name)
        trace_file.write_trace(path, chrome_trace(name, spans, backend.events(name)))
        shares = phase_shares(spans)
        tasks = sum(1 for span in spans if span.task)
        result = {
            "job": name,
            "output": str(path.absolute()),
            "tasks": tasks,
            "workers": [{"worker": worker, "phases": own} for worker, own in shares.items()],
        }
        written = f"{path}: {tasks} {'task' if tasks == 1 else 'tasks'} of {len(shares)} "
        written += "worker" if len(shares) == 1 else "workers"
        lines = [f"{written}; https://ui.perfetto.dev opens it", *_rows(shares)]
        print_result(result, output_format, lines, [str(path)])


def _rows(shares: Mapping[int, Mapping[str, float]]) -> list[str]:
    """Return where the time of each worker went, as a table."""
    if not shares:
        return []
    rows = ["".join([f"{'worker':<8}", *(f"{phase:>10}" for phase in PHASES)])]
    for worker, own in list(shares.items())[:_MAX_WORKERS]:
        percent = (f"{100 * own.get(phase, 0.0):>8.0f} %" for phase in PHASES)
        rows.append("".join([f"{worker:<8}", *percent]))
    if len(shares) > _MAX_WORKERS:
        rows.append(f"and {len(shares) - _MAX_WORKERS} more: -o json has them all")
    return rows
