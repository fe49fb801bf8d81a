"""``edl zoo init``, ``edl zoo check`` and ``edl zoo build``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from edl.app import check_data, check_model, create_zoo, image_builder, model_zoos
from edl.cli.commands import argument, command, option
from edl.cli.option_parameters import find_given, takes
from edl.cli.output import errors_as_output, output_option, print_result, quiet_option
from edl.cli.submit import interruptible, make_build_display
from edl.core.exit_codes import present
from edl.core.job_result import error_fields
from edl.core.locations import user_path
from edl.core.options import BY_NAME, Verb
from edl.core.problem import usage
from edl.core.quantities import plural
from edl.render import terminal
from edl.render.job_text import failure_lines
from edl.render.output_format import Format
from edl.use_cases.image_request import build_zoo_image
from edl.use_cases.job_submission import model_submission


@command("init", examples="edl zoo init my_zoo")
@argument("directory", metavar="DIR", help="Folder to create.")
@output_option
def init(directory: str, output_format: Format | None) -> None:
    """Create a model zoo: a model file that works, and records for it."""
    with errors_as_output(output_format):
        if not directory.strip():
            raise usage(
                "the name of the folder is empty",
                where="DIR",
                remedy="For example: edl zoo init my_zoo",
            )
        folder = user_path(directory).absolute()
        written = create_zoo(folder)
        zoo, data = shlex.quote(directory), f"{directory}/data"
        print_result(
            {"model_zoo": str(folder), "files": written},
            output_format,
            [
                *(str(Path(directory) / name) for name in written),
                "",
                "Try it:",
                f"  edl train --model-zoo {zoo} --model-def circle"
                f" --data {shlex.quote(f'{data}/train.recordio')}"
                f" --validation-data {shlex.quote(f'{data}/test.recordio')}"
                " --num-epochs 20 --output trained",
            ],
            [str(folder)],
        )


_CHECK_OPTIONS = [
    BY_NAME[name]
    for name in (
        *("model_zoo", "model_def", "params", "input_fn", "dataset_fn", "loss", "optimizer"),
        *("eval_metrics_fn", "feature_columns", "label_columns", "data", "data_format", "strategy"),
    )
]
_BUILD_OPTIONS = [
    BY_NAME[name]
    for name in (
        *("model_zoo", "repository", "builder", "base_image", "git_credential", "builder_ca"),
        *("builder_identity", "builder_config", "build_network", "engine", "build_log", "yes"),
    )
]


@command(
    "check",
    examples="edl zoo check --model-zoo model_zoo --model-def mnist.mnist_functional_api\n"
    "edl zoo check --model-zoo model_zoo --model-def regressor.DNN"
    ' --params "hidden_units=[10, 5]" -o json',
)
@takes(_CHECK_OPTIONS)
@output_option
def check(**values: Any) -> None:
    """Find all errors of a model file at once, without training.

    With --data, the check also looks at the files, and runs the model on some of the records.
    """
    output_format = values["output_format"]
    with errors_as_output(output_format):
        job = model_submission(Verb.TRAIN, find_given(_CHECK_OPTIONS, values), model_zoos())
        if job.data:
            check_data(job)
        verdict = check_model(job)
        print_result(
            {
                **verdict.facts,
                "ok": not verdict.failures,
                "model_def": job.model_def,
                "errors": [error_fields(failure) for failure in verdict.failures],
            },
            output_format,
            [] if verdict.failures else [f"{job.model_def}: no errors", *verdict.strategy_lines],
            [] if verdict.failures else [job.model_def],
        )
        for warning in verdict.warnings:
            terminal.warning(warning)
        for failure in verdict.failures:
            terminal.error(failure_lines(failure))
        if verdict.failures:
            terminal.message(f"{plural(len(verdict.failures), 'error')} in {job.model_def}")
            raise click.exceptions.Exit(present(verdict.failures[0].code).exit_code)


@command(
    "build",
    examples="edl zoo build --model-zoo model_zoo --repository registry.example.com/me/zoo"
    " --builder builder.example.com:50051\n"
    "edl zoo build --model-zoo https://git.example.com/me/zoo.git#v2 --tag v2 -o json",
)
@takes(_BUILD_OPTIONS)
@option("--tag", default="", metavar="TAG", help="Tag of the image, besides its digest.")
@option(
    "--label",
    multiple=True,
    metavar="NAME=VALUE",
    help="Label of the image. Repeat the option for several.",
)
@output_option
@quiet_option
def build(**values: Any) -> None:
    """Build an image of a model zoo and push it. Prints its name, pinned by its digest."""
    output_format, quiet = values["output_format"], values["quiet"]
    with errors_as_output(output_format):
        with interruptible():
            image = build_zoo_image(
                find_given(_BUILD_OPTIONS, values),
                make_build_display(quiet, bool(values["build_log"])),
                model_zoos(),
                image_builder(),
                values["tag"],
                _labels(values["label"]),
            )
        if not quiet:
            terminal.message(str(image))
        print_result(image.to_dict(), output_format, [image.name], [image.name])


def _labels(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise usage(
                f"--label {text} is not NAME=VALUE",
                where="--label",
                remedy="For example: --label team=vision",
            )
        found[name] = value
    return found
