"""The command ``edl`` itself: its list of commands, its help, its exit codes."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.main import get_group

from edl.cli.commands import CONTEXT, CommandEntry, LazyGroup
from edl.core.exit_codes import MEANINGS

EXAMPLES = """
edl train --model-zoo model_zoo --model-def mnist.mnist_functional_api \\
    --data "train/*.recordio" --output my_model --num-workers 2
edl predict --trained-model my_model --data "test/*.recordio" --output predictions.csv
edl list
edl logs -f NAME
"""

_JOBS, _WATCH, _FILES, _HERE = (
    "Start a job",
    "Watch and control jobs",
    "Model files and data",
    "This machine",
)

COMMANDS: dict[str, CommandEntry] = {
    "train": CommandEntry("edl.cli.submit", _JOBS, "train the model of a model file"),
    "evaluate": CommandEntry("edl.cli.submit", _JOBS, "evaluate a trained model"),
    "predict": CommandEntry("edl.cli.submit", _JOBS, "predict with a trained model"),
    "sql": CommandEntry("edl.cli.sql", _JOBS, "train and predict with statements of SQL"),
    "list": CommandEntry("edl.cli.status", _WATCH, "list all jobs"),
    "status": CommandEntry("edl.cli.status", _WATCH, "show a job: progress, metrics, workers"),
    "top": CommandEntry("edl.cli.status", _WATCH, "show a job's workers, live"),
    "dashboard": CommandEntry("edl.cli.status", _WATCH, "print the URL of a job's page"),
    "logs": CommandEntry("edl.cli.logs", _WATCH, "show the logs of a job's processes"),
    "events": CommandEntry("edl.cli.logs", _WATCH, "show a job's events"),
    "track": CommandEntry("edl.cli.track", _WATCH, "send a job to an experiment tracker"),
    "trace": CommandEntry("edl.cli.trace", _WATCH, "write what each worker did when, as a trace"),
    "wait": CommandEntry("edl.cli.control", _WATCH, "wait for the end of jobs"),
    "scale": CommandEntry("edl.cli.control", _WATCH, "change the number of workers of a job"),
    "stop": CommandEntry("edl.cli.control", _WATCH, "stop a job, keep its state"),
    "resume": CommandEntry("edl.cli.continuation", _WATCH, "continue a job that has not succeeded"),
    "export": CommandEntry("edl.cli.continuation", _WATCH, "write the model of a job as it is"),
    "delete": CommandEntry("edl.cli.control", _WATCH, "delete a finished job"),
    "zoo": CommandEntry("edl.cli.zoo", _FILES, "create, check or build a model zoo", is_group=True),
    "data": CommandEntry("edl.cli.data", _FILES, "convert data, inspect files", is_group=True),
    "doctor": CommandEntry("edl.cli.machine", _HERE, "check this machine"),
    "version": CommandEntry("edl.cli.machine", _HERE, "print versions of edl and its platform"),
    "completion": CommandEntry("edl.cli.machine", _HERE, "print a completion script for a shell"),
}

_FOOTER = (
    "Exit codes:\n"
    + "".join(f"  {code:>3}  {meaning}\n" for code, meaning in MEANINGS.items())
    + "\nAn option may also be set by a variable (EDL_NUM_WORKERS), in edl.toml or pyproject.toml\n"
    "of this folder or a parent, or in ~/.config/edl/config.toml. Jobs are in $EDL_HOME (~/.edl)."
)


class _RootGroup(LazyGroup):
    table = COMMANDS
    footer = _FOOTER


app = typer.Typer(
    cls=_RootGroup,
    name="edl",
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from edl import __version__

        typer.echo(f"edl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Elastic deep learning: one model file trains, evaluates and predicts with many workers."""


def command() -> Any:
    """The whole command line."""
    return get_group(app)
