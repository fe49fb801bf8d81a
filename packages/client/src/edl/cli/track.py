"""``edl track``."""

from __future__ import annotations

from edl.app import experiment_tracker, job_catalog, job_tracking
from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import command, option
from edl.cli.output import (
    errors_as_output,
    name_argument,
    output_option,
    print_result,
    quiet_option,
)
from edl.core.problem import usage
from edl.core.trackers import TRACKERS
from edl.ports.experiment_tracker import TrackerUnavailable
from edl.render import terminal
from edl.render.output_format import Format
from edl_proto.errors import EdlError, ErrorCode


@command("track", examples="edl track my-job\nedl track my-job --tracker mlflow -o json")
@name_argument
@option("--tracker", default="mlflow", metavar="mlflow", help="Experiment tracker.")
@quiet_option
@output_option
@finds_jobs
def track(name: str, tracker: str, quiet: bool, output_format: Format | None) -> None:
    """Send a job's parameters, metrics and model to an experiment tracker, until its end.

    What the tracker has already is not sent again: repeat the command at any time, also after the
    job's end.
    """
    with errors_as_output(output_format):
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
