"""Options of the command itself, which no job sees."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.options.option import TRAIN, Option, declare
from edl.core.options.value_types import Choice, Duration, Flag
from edl.core.trackers import TRACKERS


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of a command that say what it does besides submitting a job."""

    build_log: bool = declare(
        Option(Flag(), "Show all lines of the build of an image.", default=False)
    )
    detach: bool = declare(Option(Flag(), "Start the job and return.", default=False, per_run=True))
    dry_run: bool = declare(
        Option(
            Flag(),
            "Check options, data and model file, try the first records, and print the job; start "
            "nothing.",
            default=False,
            per_run=True,
        )
    )
    yes: bool = declare(
        Option(
            Flag(),
            "Accept a model zoo with many or large files: they go into the trained model.",
            verbs=TRAIN,
            default=False,
            per_run=True,
        )
    )
    timeout: float | None = declare(
        Option(Duration(min_s=0.1), "Stop the job if it takes longer.", "2h", default=None)
    )
    tracker: str = declare(
        Option(
            Choice(("none", *TRACKERS)),
            "Send parameters, metrics and the model to an experiment tracker while the command "
            "waits; edl track NAME does that for other jobs.",
            "mlflow",
            default="none",
            verbs=TRAIN,
        )
    )
