"""The command ``edl`` itself: its list of commands, its help, its exit codes."""

from __future__ import annotations

import click

from edl import __version__
from edl.cli.commands import CONTEXT, CommandEntry, LazyGroup
from edl.cli.plugin_commands import CommandTable
from edl.core.exit_codes import MEANINGS

EXAMPLES = """
edl train --model-zoo model_zoo --model-def mnist.mnist_functional_api \\
    --data "train/*.recordio" --output my_model --num-workers 2
edl predict --trained-model my_model --data "test/*.recordio" --output predictions.csv
edl list
edl logs -f NAME
"""

_JOBS, _WATCH, _FILES, _MACHINE = (
    "Start a job",
    "Watch and control jobs",
    "Model files and data",
    "This machine",
)

COMMANDS: dict[str, CommandEntry] = {
    "train": CommandEntry("edl.cli.submit:train", _JOBS, "train the model of a model file"),
    "evaluate": CommandEntry("edl.cli.submit:evaluate", _JOBS, "evaluate a trained model"),
    "predict": CommandEntry("edl.cli.submit:predict", _JOBS, "predict with a trained model"),
    "list": CommandEntry("edl.cli.status:list_jobs", _WATCH, "list all jobs"),
    "status": CommandEntry(
        "edl.cli.status:show_status", _WATCH, "show a job: progress, metrics, workers"
    ),
    "top": CommandEntry("edl.cli.status:top", _WATCH, "show a job's workers, live"),
    "dashboard": CommandEntry("edl.cli.status:dashboard", _WATCH, "print the URL of a job's page"),
    "logs": CommandEntry("edl.cli.logs:logs", _WATCH, "show the logs of a job's processes"),
    "events": CommandEntry("edl.cli.logs:events", _WATCH, "show a job's events"),
    "track": CommandEntry("edl.cli.track:track", _WATCH, "send a job to an experiment tracker"),
    "wait": CommandEntry("edl.cli.control:wait", _WATCH, "wait for the end of jobs"),
    "scale": CommandEntry("edl.cli.control:scale", _WATCH, "change the number of workers of a job"),
    "set": CommandEntry(
        "edl.cli.control:set_option", _WATCH, "change the learning rate of a running job"
    ),
    "stop": CommandEntry("edl.cli.control:stop", _WATCH, "stop a job, keep its state"),
    "resume": CommandEntry(
        "edl.cli.continuation:resume", _WATCH, "continue a job that has not succeeded"
    ),
    "export": CommandEntry(
        "edl.cli.continuation:export", _WATCH, "write the model of a job as it is"
    ),
    "release": CommandEntry(
        "edl.cli.release:release", _WATCH, "write the model of a running job again and again"
    ),
    "delete": CommandEntry("edl.cli.deletion:delete", _WATCH, "delete finished jobs"),
    "zoo": CommandEntry("edl.cli.groups:zoo", _FILES, "create, check or build a model zoo"),
    "data": CommandEntry("edl.cli.groups:data", _FILES, "convert data, inspect files"),
    "doctor": CommandEntry("edl.cli.machine:doctor", _MACHINE, "check this machine"),
    "version": CommandEntry(
        "edl.cli.machine:version", _MACHINE, "print versions of edl and its platform"
    ),
    "completion": CommandEntry(
        "edl.cli.machine:completion", _MACHINE, "print a completion script for a shell"
    ),
}

_FOOTER = (
    "Exit codes:\n"
    + "".join(f"  {code:>3}  {meaning}\n" for code, meaning in MEANINGS.items())
    + "\nAn option may also be set by a variable (EDL_NUM_WORKERS), in edl.toml or pyproject.toml\n"
    "of this folder or a parent, or in ~/.config/edl/config.toml. Jobs are in $EDL_HOME (~/.edl)."
)


@click.group(
    "edl",
    cls=LazyGroup,
    table=CommandTable(COMMANDS),
    footer=_FOOTER,
    epilog=EXAMPLES,
    no_args_is_help=True,
    context_settings=CONTEXT,
)
@click.version_option(__version__, message="edl %(version)s", help="Show the version.")
def root() -> None:
    """Elastic deep learning: one model file trains, evaluates and predicts with many workers."""
