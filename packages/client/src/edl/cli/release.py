"""``edl release``."""

from __future__ import annotations

import os

import click

from edl import codec
from edl.app import job_catalog, release_folder
from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import command, option
from edl.cli.control import read_duration
from edl.cli.output import errors_as_output, name_argument, quiet_option
from edl.cli.submit import make_display
from edl.core import locations
from edl.core.problem import Problem
from edl.render import terminal
from edl.use_cases.model_release import ModelReleaser


@command(
    "release",
    examples="edl release clicks --to releases --every 5m --keep 3\n"
    "edl release clicks --to s3://bucket/clicks\nedl serve releases",
)
@name_argument
@option("--to", metavar="DIR", required=True, help="Folder of the releases, or its URI.")
@option("--every", default="5m", metavar="DURATION", help="Time between two releases.")
@option(
    "--keep",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Remove older releases than the last N. [default: 0, all stay]",
)
@quiet_option
@finds_jobs
def release(name: str, to: str, every: str, keep: int, quiet: bool) -> None:
    """Write the model of a running job again and again, and its trained model at the end.

    Each release is a trained model in a folder of its own, DIR/1, DIR/2 and so on, which appears
    whole and never changes. It is written from the newest snapshot by a process of its own, and the
    training goes on meanwhile. edl serve DIR serves the last one. Ctrl-C ends the releases, not
    the job.
    """
    with errors_as_output(None):
        try:
            seconds = read_duration("--every", every, "5m")
            locations.check(to, "--to")
            place = locations.absolute(to, os.getcwd(), os.environ)
        except Problem as problem:
            raise codec.error_of(problem) from None
        assert seconds is not None, "it has a default"
        display = make_display(quiet=True)
        folder = release_folder(place)
        releaser = ModelReleaser(job_catalog(), name, folder, display, every_s=seconds, keep=keep)
        for made in releaser.run():
            if not quiet:
                gone = f", removed {', '.join(map(str, made.removed))}" if made.removed else ""
                terminal.message(
                    f"release {made.number}: parameter version {made.version}, {made.place}{gone}"
                )
        if not quiet:
            terminal.message(f"{name} is over")
