"""``edl data convert``, ``load`` and ``inspect``."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from edl.cli.commands import CommandEntry, LazyGroup, argument, command, option
from edl.cli.output import (
    errors_as_output,
    output_option,
    password_file_option,
    print_result,
    quiet_option,
)
from edl.core.formats import Compression, ImageForm, InspectedFormat, SourceFormat
from edl.render.output_format import Format

_REPORT_EVERY_S = 5.0


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
    help="Database to convert from: postgresql://…, mysql://…, sqlite:///file.",
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
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Random seed of the split."
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
    delimiter: str,
    image_as: ImageForm,
    image_size: str,
    records_per_file: int,
    compressor: Compression,
    split: float | None,
    seed: int,
    output_format: Format | None,
    quiet: bool,
) -> None:
    """Convert tables, images and records to RecordIO files.

    Reads CSV, Parquet, TFRecord, RecordIO, folders of images, MNIST's idx files, and the rows of a
    query, and writes records of tf.Example. schema.json next to them describes the columns.
    """
    with errors_as_output(output_format):
        from edl.conversion.origin import Origin, open_origin
        from edl.conversion.source import ConversionOptions
        from edl.conversion.writer import FileLayout, check_layout, write
        from edl.core.problem import usage
        from edl.core.quantities import one_line, plural

        layout = FileLayout(records_per_file, compressor, split, seed)
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
        )
        with (
            open_origin(origin, options) as source,
            _progress(source.total, quiet) as report,
        ):
            done = write(source, place, layout, report)
        lines = [
            f"{plural(number, 'record')} in {posixpath.join(to, part) if part else to}"
            for part, number in done.records.items()
        ]
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
    from edl.core.problem import usage

    if not text:
        return None
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text.lower())
    if not match or not int(match[1]) or not int(match[2]):
        raise usage(
            f"--size {text!r} is not a size", where="--size", remedy="Height x width: --size 28x28"
        )
    return int(match[1]), int(match[2])


@contextmanager
def _progress(total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, a line every few seconds elsewhere."""
    import time

    from edl.core.quantities import count
    from edl.render import terminal

    begin = time.monotonic()

    def rate(done: int) -> int:
        return round(done / max(time.monotonic() - begin, 0.001))

    if quiet:
        yield lambda _: None
    elif terminal.may_animate(sys.stderr):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (
            *("records", BarColumn(), MofNCompleteColumn(), "{task.fields[rate]:,}/s"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=terminal.console(sys.stderr), transient=True) as bar:
            task = bar.add_task("", total=total, rate=0)
            yield lambda done: bar.update(task, completed=done, rate=rate(done))
    else:
        due = begin + _REPORT_EVERY_S

        def report(done: int) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + _REPORT_EVERY_S
                of = f" of {count(total)}" if total else ""
                terminal.message(f"{count(done)}{of} records, {count(rate(done))}/s")

        yield report


@command(
    "load",
    examples="edl data load --from predictions.recordio --to postgresql://me@host/db \\\n"
    "    --table testdata --column predicted_salary --key id",
)
@option(
    "predictions",
    "--from",
    required=True,
    metavar="FILES",
    help="Predictions: a file, folder or pattern.",
)
@option(
    "--to",
    required=True,
    metavar="URL",
    help="Database to write to: postgresql://…, mysql://…, sqlite:///file.",
)
@option("--table", required=True, metavar="TABLE", help="Table, or schema.table, to write to.")
@option(
    "--column", required=True, metavar="COLUMN", help="Column to write; added if it is missing."
)
@option(
    "--key",
    default="id",
    metavar="COLUMN",
    help="Column that identifies a row, here and in the table.",
)
@option(
    "--prediction",
    default="prediction",
    metavar="NAME",
    help="Name of the value in the predictions.",
)
@password_file_option
@output_option
@quiet_option
def load(  # noqa: PLR0913  (the parameters are the options of the command)
    predictions: str,
    to: str,
    table: str,
    column: str,
    key: str,
    prediction: str,
    password_file: str,
    output_format: Format | None,
    quiet: bool,
) -> None:
    """Write predictions into a column of a database's table.

    Each prediction goes into the row with its key, all of them in one transaction. The predictions
    need the key: edl predict --keep id.
    """
    with errors_as_output(output_format):
        from edl.adapters.databases import Database
        from edl.conversion.column_loader import load_column
        from edl.conversion.predictions import Predictions
        from edl.conversion.target_columns import Target
        from edl.core.problem import usage
        from edl.core.quantities import count, plural

        named = {"--table": table, "--column": column, "--key": key, "--prediction": prediction}
        for option, name in named.items():
            if not name.strip():
                raise usage(f"{option} is empty", where=option, remedy="Name it.")
        database = Database(to, password_file)
        values = Predictions(predictions, key, prediction)
        with _progress(None, quiet) as report:
            done = load_column(database, Target(table, column, key), values, report)
        lines = [f"{plural(done.rows, 'prediction')} in column {column} of {table}"]
        if done.column_added:
            lines.append(f"the column {column} is new")
        if done.others:
            lines.append(f"{count(done.others)} other rows have no prediction and are as they were")
        print_result(
            {
                "table": table,
                "column": column,
                "rows": done.rows,
                "other_rows": done.others,
                "column_added": done.column_added,
            },
            output_format,
            lines,
            [f"{table}.{column}"],
        )


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
        from edl.adapters.data_files import expand
        from edl.conversion.inspection import inspect as look
        from edl.conversion.inspection import lines

        found = [file for pattern in files for file in expand(pattern, "FILE")]
        reports = [look(file, form.value if form else "", check) for file in found]
        print_result(
            [report.to_dict() for report in reports],
            output_format,
            [line for report in reports for line in lines(report)],
            found,
        )


_COMMANDS = "Commands"
data = LazyGroup(
    "data",
    table={
        "convert": CommandEntry(
            "edl.cli.data:convert", _COMMANDS, "convert tables and images to RecordIO files"
        ),
        "load": CommandEntry(
            "edl.cli.data:load", _COMMANDS, "write predictions into a column of a table"
        ),
        "inspect": CommandEntry(
            "edl.cli.data:inspect", _COMMANDS, "show format, size and first record of files"
        ),
    },
    help="Convert data to RecordIO files, inspect files of records, load predictions.",
    epilog="edl data convert table.csv --label price --to data\n"
    "edl data inspect data/*.recordio --check",
    no_args_is_help=True,
)
