"""``edl zoo init`` and ``edl zoo check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edl.cli.parsing import CONTEXT, EdlCommand, EdlGroup
from edl.cli.reporting import Output, put, reporting
from edl.core.options import Given, Verb

app = typer.Typer(
    cls=EdlGroup,
    name="zoo",
    help="Start a model zoo, or check a model file.",
    epilog="edl zoo init my_zoo\nedl zoo check --model-zoo my_zoo --model-def circle",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)


@app.command(cls=EdlCommand, epilog="edl zoo init my_zoo")
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to be made.")],
    output_format: Output = None,
) -> None:
    """Write a small model file that works, records for it, and a README that says how to go on."""
    with reporting(output_format):
        from edl.adapters.newzoo import create

        folder = directory.expanduser().absolute()
        written = create(folder)
        put(
            {"model_zoo": str(folder), "files": written},
            output_format,
            [
                *(f"{directory / name}" for name in written),
                "",
                "Try it:",
                f"  edl train --model-zoo {directory} --model-def circle"
                f" --data {directory}/data/train.recordio"
                f" --validation-data {directory}/data/test.recordio"
                " --num-epochs 20 --output circle_model",
            ],
            [str(folder)],
        )


def _text(flag: str, metavar: str, about: str) -> object:
    return typer.Option(flag, metavar=metavar, help=about)


_Text = str | None
_SAME = "as for edl train"


@app.command(
    cls=EdlCommand,
    epilog="edl zoo check --model-zoo model_zoo --model-def mnist.mnist_functional_api\n"
    "edl zoo check --model-zoo model_zoo --model-def regressor.DNN"
    ' --params "hidden_units=[10, 5]" -o json',
)
def check(
    model_zoo: Annotated[_Text, _text("--model-zoo", "DIR", "folder of model files")] = None,
    model_def: Annotated[_Text, _text("--model-def", "A.B.NAME", "the model")] = None,
    params: Annotated[_Text, _text("--params", "NAME=VALUE,...", "its parameters")] = None,
    input_fn: Annotated[_Text, _text("--input-fn", "NAME", _SAME)] = None,
    dataset_fn: Annotated[_Text, _text("--dataset-fn", "NAME", _SAME)] = None,
    loss: Annotated[_Text, _text("--loss", "NAME", _SAME)] = None,
    optimizer: Annotated[_Text, _text("--optimizer", "NAME", _SAME)] = None,
    eval_metrics_fn: Annotated[
        _Text, _text("--eval-metrics-fn", "NAME", "as for edl train")
    ] = None,
    feature_columns: Annotated[
        _Text, _text("--feature-columns", "NAME", "as for edl train")
    ] = None,
    label_columns: Annotated[_Text, _text("--label-columns", "NAME", _SAME)] = None,
    data: Annotated[_Text, _text("--data", "PATTERN", "try it on a few of these records")] = None,
    data_format: Annotated[_Text, _text("--data-format", "FORMAT", _SAME)] = None,
    output_format: Output = None,
) -> None:
    """Find everything that is wrong with a model file, at once, without training."""
    values = dict(locals())
    values.pop("output_format")
    with reporting(output_format):
        from edl import codec
        from edl.adapters import checker
        from edl.app import model_submission
        from edl.core.result import error_fields
        from edl.core.telling import failure_lines, plural
        from edl.render import terminal

        flags = {
            name: Given(value, "--" + name.replace("_", "-"))
            for name, value in values.items()
            if value is not None
        }
        job = model_submission(Verb.TRAIN, flags)
        verdict = checker.check(codec.encode_spec(job, job_dir="", submitted_at=""))
        known = [codec.error_of(failure) for failure in verdict.failures]
        put(
            {
                **verdict.facts,
                "ok": not known,
                "model_def": job.model_def,
                "errors": [error_fields(failure) for failure in verdict.failures],
            },
            output_format,
            [] if known else [f"{job.model_def}: nothing is wrong with it"],
            [] if known else [job.model_def],
        )
        for failure, error in zip(verdict.failures, known, strict=True):
            terminal.error(failure_lines(failure, error.entry.title))
        if known:
            terminal.message(f"{plural(len(known), 'error')} in {job.model_def}")
            raise typer.Exit(known[0].exit_code)
