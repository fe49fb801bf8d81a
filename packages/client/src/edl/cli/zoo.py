"""``edl zoo init``, ``edl zoo check`` and ``edl zoo build``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edl.cli.commands import CONTEXT, EdlCommand, EdlGroup
from edl.cli.output import Output, Quiet, put, reporting
from edl.core.options import Given, Verb

app = typer.Typer(
    cls=EdlGroup,
    name="zoo",
    help="Start a model zoo, check a model file, build the zoo's image.",
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
        from edl.adapters.zoo_template import create

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
        from edl.adapters import model_file_check
        from edl.app import model_submission
        from edl.core.job_result import error_fields
        from edl.core.quantities import plural
        from edl.render import terminal
        from edl.render.job_text import failure_lines

        flags = {
            name: Given(value, "--" + name.replace("_", "-"))
            for name, value in values.items()
            if value is not None
        }
        job = model_submission(Verb.TRAIN, flags)
        verdict = model_file_check.check(codec.encode_spec(job, job_dir="", submitted_at=""))
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


@app.command(
    cls=EdlCommand,
    epilog="edl zoo build --model-zoo model_zoo --repository registry.example.com/me/zoo"
    " --builder builder.example.com:50051\n"
    "edl zoo build --model-zoo https://git.example.com/me/zoo.git#v2 --tag v2 -o json",
)
def build(
    model_zoo: Annotated[
        _Text, _text("--model-zoo", "DIR|URL", "folder, or https://host/path.git[#REF[:FOLDER]]")
    ] = None,
    repository: Annotated[
        _Text, _text("--repository", "REGISTRY/PATH", "where the image goes")
    ] = None,
    tag: Annotated[str, typer.Option("--tag", metavar="TAG", help="besides the digest")] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="of the image; may be repeated"),
    ] = None,
    builder: Annotated[_Text, _text("--builder", "HOST:PORT", _SAME)] = None,
    base_image: Annotated[_Text, _text("--base-image", "NAME", _SAME)] = None,
    git_credential: Annotated[_Text, _text("--git-credential", "NAME", _SAME)] = None,
    builder_ca: Annotated[_Text, _text("--builder-ca", "FILE", _SAME)] = None,
    builder_identity: Annotated[_Text, _text("--builder-identity", "FILE", _SAME)] = None,
    builder_config: Annotated[_Text, _text("--builder-config", "FILE", _SAME)] = None,
    build_network: Annotated[_Text, _text("--build-network", "NAME", _SAME)] = None,
    engine: Annotated[_Text, _text("--engine", "URL", _SAME)] = None,
    build_log: Annotated[
        bool, typer.Option("--build-log", help="show all lines of the build")
    ] = False,
    output_format: Output = None,
    quiet: Quiet = False,
) -> None:
    """Make an image of a model zoo, and push it. Prints its name, pinned by its digest."""
    values = dict(locals())
    for other in ("tag", "label", "build_log", "output_format", "quiet"):
        values.pop(other)
    with reporting(output_format):
        from edl.app import build_image
        from edl.cli.submit import build_display, interruptible
        from edl.render import terminal

        flags = {
            name: Given(value, "--" + name.replace("_", "-"))
            for name, value in values.items()
            if value is not None
        }
        with interruptible():
            image = build_image(flags, build_display(quiet, build_log), tag, _labels(label or []))
        if not quiet:
            terminal.message(str(image))
        put(image.to_dict(), output_format, [image.name], [image.name])


def _labels(texts: list[str]) -> dict[str, str]:
    from edl.core.problem import usage

    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise usage(
                f"--label {text}: it is not NAME=VALUE",
                where="--label",
                remedy="For example: --label team=vision",
            )
        found[name] = value
    return found
