"""``edl data convert`` and ``inspect``."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

import click

from edl.plugins.commands import (
    Format,
    argument,
    command,
    errors_as_output,
    option,
    output_option,
    print_result,
    quiet_option,
)
from edl_convert.formats import Compression, ImageForm, InspectedFormat, SourceFormat

password_file_option = option(
    "--password-file",
    metavar="FILE",
    default="",
    help="File whose first line is the database's password. [default: EDL_DATABASE_PASSWORD, "
    "~/.pgpass, ~/.my.cnf]",
)


@command(
    "convert",
    examples="edl data convert table.csv --label price --split 0.9 --to data\n"
    "edl data convert 'rows/*.parquet' --columns age,income,label --to data\n"
    "edl data convert photos --size 64x64 --to data\n"
    "edl data convert train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz --to mnist\n"
    "edl data convert --from postgresql://me@host/db --query 'SELECT * FROM employee' --to data\n"
    "edl data convert old.tfrecord --to new.recordio",
)
@option(
    "--to",
    "--output",
    required=True,
    metavar="OUT",
    help="Folder to create, or one file *.recordio; here or in a store.",
)
@argument("sources", nargs=-1, metavar="[SRC...]", help="Files, folders or patterns.")
@option(
    "database",
    "--from",
    default="",
    metavar="URL",
    help="Database to convert from: postgresql://…, mysql://…, sqlite:///file, duckdb:///file.",
)
@option("--query", default="", metavar="SELECT", help="Query whose rows become records.")
@password_file_option
@option(
    "form",
    "--format",
    type=click.Choice(SourceFormat, case_sensitive=False),
    help="Format of the sources. [default: by name, else by content]",
)
@option("--columns", default="", metavar="A,B,...", help="Columns to convert. [default: all]")
@option(
    "--label",
    default="",
    metavar="COLUMN",
    help="Column that becomes the feature label; labels.json numbers text labels.",
)
@option(
    "labels_file",
    "--labels",
    default="",
    metavar="FILE",
    help="labels.json of other data, whose numbers the labels get. [default: numbers in "
    "alphabetical order]",
)
@option(
    "--delimiter",
    default="",
    metavar="CHAR",
    help="Delimiter of CSV files. [default: by the first lines]",
)
@option(
    "--image-as",
    type=click.Choice(ImageForm, case_sensitive=False),
    default=ImageForm.FLOATS.value,
    help="How the feature image is stored.",
)
@option("image_size", "--size", default="", metavar="HxW", help="Resize images to this size.")
@option(
    "--records-per-file",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Records in each file; 0 for one file.",
)
@option(
    "--compressor",
    type=click.Choice(Compression, case_sensitive=False),
    default=Compression.SNAPPY.value,
    help="Compression of the chunks.",
)
@option(
    "--split",
    type=float,
    metavar="FRACTION",
    help="Fraction for OUT/train; the rest goes to OUT/test.",
)
@option(
    "--shuffle/--no-shuffle",
    default=None,
    help="Write the records in a random order. [default: with --split, and images of folders, "
    "which are sorted by class otherwise; without --split, rows keep their order, as a line of "
    "predictions belongs to a row]",
)
@option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Random seed of the split and of the order: the same seed makes the same files.",
)
@output_option
@quiet_option
def convert(  # noqa: PLR0913  (the parameters are the options of the command)
    to: str,
    sources: tuple[str, ...],
    database: str,
    query: str,
    password_file: str,
    form: SourceFormat | None,
    columns: str,
    label: str,
    labels_file: str,
    delimiter: str,
    image_as: ImageForm,
    image_size: str,
    records_per_file: int,
    compressor: Compression,
    split: float | None,
    shuffle: bool | None,
    seed: int,
    output_format: Format | None,
    quiet: bool,
) -> None:
    """Convert tables, images and records to RecordIO files.

    Reads CSV, Parquet, TFRecord, RecordIO, folders of images, MNIST's idx files, and the rows of a
    query, and writes records of tf.Example. schema.json next to them describes the columns.
    """
    with errors_as_output(output_format):
        from edl.plugins.errors import usage
        from edl.plugins.texts import one_line, plural
        from edl_convert.origin import Origin, open_origin
        from edl_convert.progress import show_progress
        from edl_convert.source import ConversionOptions
        from edl_convert.writer import FileLayout, check_layout, write

        layout = FileLayout(records_per_file, compressor, split, seed, shuffle)
        place = check_layout(to, layout)
        origin = Origin(tuple(sources or ()), form, database, query, password_file)
        if len(delimiter) > 1 and delimiter != "\\t":
            raise usage(
                f"--delimiter {delimiter!r}: it must be one character",
                where="--delimiter",
                remedy="For semicolons: --delimiter ';'",
            )
        options = ConversionOptions(
            columns=tuple(name.strip() for name in columns.split(",") if name.strip()),
            label=label,
            delimiter="\t" if delimiter == "\\t" else delimiter,
            image_form=image_as,
            size=_size(image_size),
            numbers=_numbers(labels_file),
        )
        with (
            open_origin(origin, options) as source,
            show_progress(source.total, quiet) as report,
        ):
            if options.numbers and not source.classes:
                raise usage(
                    "--labels has no effect: the labels are no texts, and no names of folders",
                    where="--labels",
                    remedy="Leave it out.",
                )
            done = write(source, place, layout, report)
        lines = [
            f"{plural(number, 'record')} in {posixpath.join(to, part) if part else to}"
            for part, number in done.records.items()
        ]
        lines += [f"warning: {text}" for text in getattr(source, "warnings", ())]
        lines += [
            f"{part} is empty: --split drew none of the few records for it; try another --seed"
            for part, number in done.records.items()
            if not number
        ]
        if done.classes:
            many = "1 class" if len(done.classes) == 1 else f"{len(done.classes)} classes"
            lines.append(f"{many}, numbered in labels.json")
        if done.features:
            lines.append("features of the first record:")
            shown = {one_line(name): feature for name, feature in done.features.items()}
            width = max(map(len, shown))
            lines += [f"  {name:<{width}}  {feature}" for name, feature in shown.items()]
        print_result(
            {
                "output": str(done.output),
                "records": sum(done.records.values()),
                "parts": {part or "all": number for part, number in done.records.items()},
                "files": [str(file) for file in done.files],
                "classes": done.classes,
                "features": {name: value.to_dict() for name, value in done.features.items()},
            },
            output_format,
            lines,
            [str(file) for file in done.files],
        )


def _size(text: str) -> tuple[int, int] | None:
    from edl.plugins.errors import usage

    if not text:
        return None
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text.lower())
    if not match or not int(match[1]) or not int(match[2]):
        raise usage(
            f"--size {text!r} is not a size", where="--size", remedy="Height x width: --size 28x28"
        )
    return int(match[1]), int(match[2])


def _numbers(file: str) -> Mapping[str, int]:
    from edl.plugins.errors import usage

    if not file:
        return {}
    try:
        found = json.loads(Path(file).read_bytes())
        numbers = {str(text): int(number) for text, number in found.items()}
    except (OSError, AttributeError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it has no texts with numbers"
        raise usage(
            f"--labels {file} cannot be read: {reason}",
            where="--labels",
            remedy="Name the labels.json that edl data convert wrote next to other data.",
        ) from None
    if not numbers:
        raise usage(f"--labels {file} has no labels", where="--labels", remedy="Leave it out.")
    return numbers


@command(
    "inspect",
    examples="edl data inspect train.recordio\nedl data inspect 'data/*.recordio' --check -o json",
)
@argument("files", nargs=-1, required=True, metavar="FILE...", help="Files or patterns.")
@option(
    "form",
    "--format",
    type=click.Choice(InspectedFormat, case_sensitive=False),
    help="Format of the files. [default: by name, else by content]",
)
@option("--check", is_flag=True, help="Read everything and verify all checksums.")
@output_option
def inspect(
    files: tuple[str, ...], form: InspectedFormat | None, check: bool, output_format: Format | None
) -> None:
    """Show format, size and first record of files.

    Reads RecordIO, TFRecord, CSV, Parquet and JSON Lines.
    """
    with errors_as_output(output_format):
        from edl.plugins.data import data_files
        from edl_convert.inspection import inspect as look
        from edl_convert.inspection import lines

        found = [file for pattern in files for file in data_files.expand(pattern, "FILE")]
        reports = [look(file, form.value if form else "", check) for file in found]
        print_result(
            [report.to_dict() for report in reports],
            output_format,
            [line for report in reports for line in lines(report)],
            found,
        )


_COMMANDS = "Commands"
