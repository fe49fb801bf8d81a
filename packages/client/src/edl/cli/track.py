"""``edl track``."""

from __future__ import annotations

from typing import Annotated

import typer

from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import CONTEXT, EdlCommand
from edl.cli.output import Name, Output, Quiet, errors_as_output, print_result

app = typer.Typer(rich_markup_mode=None, context_settings=CONTEXT)


@app.command(cls=EdlCommand, epilog="edl track my-job\nedl track my-job --tracker mlflow -o json")
@finds_jobs
def track(
    name: Name,
    tracker: Annotated[
        str, typer.Option("--tracker", metavar="mlflow", help="Experiment tracker.")
    ] = "mlflow",
    quiet: Quiet = False,
    output_format: Output = None,
) -> None:
    """Send a job's parameters, metrics and model to an experiment tracker, until its end.

    What the tracker has already is not sent again: repeat the command at any time, also after the
    job's end.
    """
    with errors_as_output(output_format):
        from edl.app import experiment_tracker, job_catalog, job_tracking
        from edl.core.problem import usage
        from edl.core.trackers import TRACKERS
        from edl.core.tracking import TrackerUnavailable
        from edl.render import terminal
        from edl_proto.errors import EdlError, ErrorCode

        if tracker not in TRACKERS:
            raise usage(
                f"--tracker: {tracker!r} is not one of {', '.join(TRACKERS)}",
                where="--tracker",
                remedy=f"For example: --tracker {next(iter(TRACKERS))}",
            )

        def say(text: str) -> None:
            if not quiet:
                terminal.message(text)

        backend = job_catalog().find(name)  # first: without a job, the tracker does not matter
        try:
            place = job_tracking(backend, name, experiment_tracker(tracker), say).run()
        except TrackerUnavailable as error:
            raise EdlError(
                ErrorCode.TRACKER_UNAVAILABLE,
                f"{tracker} has received only a part of {name}: {error}",
                where=f"--tracker {tracker}",
                remedy=f"edl track {name} sends what is missing.",
            ) from None
        print_result(
            {"job": name, "tracker": tracker, "run": place}, output_format, [place], [name]
        )
