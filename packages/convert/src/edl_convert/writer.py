"""Writes converted records: whole files, whole folders, or nothing."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import recordio
from edl.plugins.data import (
    SCHEMA_FILE,
    SPLIT_PARTS,
    absolute,
    check_location,
    check_output,
    data_files,
    scheme,
)
from edl.plugins.errors import usage
from edl_convert import stored_output
from edl_convert.drafts import draft
from edl_convert.features import FeatureSummary, summarize, with_values
from edl_convert.formats import Compression
from edl_convert.schema_statistics import RecordStatistics
from edl_convert.shuffle import shuffle
from edl_convert.source import ExampleSource, ReadAgain, Unordered
from edl_proto.errors import EdlError, ErrorCode

LABELS = "labels.json"
"""Names of the classes by number, next to the data that was numbered."""

_REPORT_EVERY = 64  # records


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How records are laid out in files.

    Attributes:
        records_per_file: 0 for one file.
        split: part of the records that goes to ``train``, the rest to ``test``; None for no
            split. Each record is drawn by itself, so the parts are near this, not exact.
        seed: of that draw, and of the order.
        shuffle: whether the records are written in a random order; None: those of a split, and
            of folders of images, which have no order of their own. Without a split, rows keep
            their order, since a line of predictions belongs to a row.
    """

    records_per_file: int = 0
    compression: Compression = Compression.SNAPPY
    split: float | None = None
    seed: int = 0
    shuffle: bool | None = None


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """What was written.

    Attributes:
        output: a path, or the URI of a place in a store.
        records: number of records by part; the part is empty without a split.
        features: those of the first record, by name; empty if it is no ``tf.Example``.
        schema: the content of ``schema.json``; None if the records are no ``tf.Example``.
    """

    output: Path | str
    records: dict[str, int]
    files: list[Path] | list[str]
    classes: dict[str, int]
    features: dict[str, FeatureSummary]
    schema: dict[str, Any] | None


def check_layout(output: str, layout: FileLayout) -> str:
    """Check that records can be laid out so, and that nothing is at the output.

    Args:
        output: a path, or the URI of a place in a store.

    Returns:
        The output as ``write`` takes it.

    Raises:
        Problem, EdlError: they cannot; the options are those of ``edl data convert``.
    """
    if layout.split is not None and not 0 < layout.split < 1:
        raise usage(
            f"--split {layout.split:g}: it must be between 0 and 1",
            where="--split",
            remedy="For example, to train on nine tenths of the records: --split 0.9",
        )
    if not output.strip():
        raise usage(
            "the name of the output is empty", where="--to", remedy="Name a new folder: --to data"
        )
    check_location(output, "--to")
    suffix = PurePosixPath(output).suffix
    if suffix == ".recordio" and (layout.split is not None or layout.records_per_file):
        raise usage(
            f"--to {output} is one file; --split and --records-per-file make several",
            where="--to",
            remedy="Name a folder.",
        )
    if suffix.lower() in (".csv", ".tsv", ".parquet", ".jsonl", ".tfrecord"):
        raise usage(
            f"--to {output}: the command writes RecordIO, and would make a folder of this name",
            where="--to",
            remedy="Name a folder, or a file that ends in .recordio.",
        )
    output = absolute(output, os.getcwd(), {})
    places = [output]
    if suffix == ".recordio":
        places += [f"{output.removesuffix(suffix)}.{name}" for name in (LABELS, SCHEMA_FILE)]
    if scheme(output):
        stored_output.remove_abandoned(output, places)
    for place in places:
        check_output(place, "--to")
    if scheme(output):
        stored_output.check(output)
    return output


def write(
    source: ExampleSource, output: str, layout: FileLayout, on_progress: Callable[[int], None]
) -> ConversionResult:
    """Write all records of a source; nothing of it is seen before all of it is there.

    In a store, files appear one by one, each of them whole; ``schema.json`` is the last one.

    Args:
        output: that ``check_layout`` has returned: a folder to be made, or one file if its name
            ends in ``.recordio``.
        on_progress: called with the number of records so far, from time to time.

    Raises:
        EdlError: DISK_FULL, OUTPUT_UNWRITABLE, DATA_EMPTY, or what the source raises.
    """
    if not scheme(output):
        while True:
            with suppress(ReadAgain):
                return _write(source, Path(output), layout, on_progress)
    with stored_output.folder() as here:
        place = here / PurePosixPath(output).name
        done = write(source, str(place), layout, on_progress)
        stored_output.send(here, output, last=SCHEMA_FILE)
        above = output[: -len(place.name)]
        files = [f"{above}{Path(file).relative_to(here)}" for file in done.files]
        return replace(done, output=output, files=files)


def _write(
    source: ExampleSource, output: Path, layout: FileLayout, on_progress: Callable[[int], None]
) -> ConversionResult:
    single = output.suffix == ".recordio"
    with _errors(output), draft(output) as place:
        statistics = RecordStatistics()
        counts, files = _fill(place, source, layout, single, statistics, on_progress)
        features = summarize(files[0], source.image_shape)
        described = statistics.schema(source.types, "label" if "label" in features else None)
        if described is not None:
            features = with_values(features, described)
        about = {LABELS: dict(source.classes) or None, SCHEMA_FILE: described}
        for name, content in about.items():
            if content is not None:
                (place / name).write_text(json.dumps(content, indent=2) + "\n")
        if single:
            for name in about:
                if (place / name).exists():
                    (place / name).rename(output.with_suffix(f".{name}"))
            files[0].rename(output)
            kept = [output]
        else:
            place.rename(output)
            kept = [output / file.relative_to(place) for file in files]
        return ConversionResult(output, counts, kept, dict(source.classes), features, described)


def _fill(
    place: Path,
    source: ExampleSource,
    layout: FileLayout,
    single: bool,
    statistics: RecordStatistics,
    on_progress: Callable[[int], None],
) -> tuple[dict[str, int], list[Path]]:
    parts = list(SPLIT_PARTS) if layout.split is not None else [""]
    draw = random.Random(layout.seed)
    with ExitStack() as stack:
        shards = {
            part: stack.enter_context(
                _Shards(place / part, layout.compression, 0 if single else layout.records_per_file)
            )
            for part in parts
        }
        total = 0
        for record in _put_in_order(source, layout, place):
            part = parts[0]
            if layout.split is not None and draw.random() >= layout.split:
                part = parts[1]
            shards[part].write(record)
            statistics.add(record)
            total += 1
            if total % _REPORT_EVERY == 0:
                on_progress(total)
        on_progress(total)
    if total == 0:
        raise EdlError(
            ErrorCode.DATA_EMPTY,
            "there are no records to convert",
            where=source.name,
            remedy="Check that the source has more than a header.",
        )
    counts = {part: shard.records for part, shard in shards.items()}
    return counts, [file for shard in shards.values() for file in shard.files]


class _Shards:
    """Files ``part-00000.recordio`` and on; each closed when it is full."""

    def __init__(self, folder: Path, compression: Compression, per_file: int) -> None:
        self._folder = folder
        self._compression = compression
        self._per_file = per_file
        self._writer: recordio.Writer | None = None
        self.files: list[Path] = []
        self.records = 0

    def __enter__(self) -> _Shards:
        self._folder.mkdir(exist_ok=True)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._writer is None:
            return
        if kind is None:
            self._writer.close()
        else:
            self._writer.discard()

    def write(self, record: bytes) -> None:
        writer = self._writer
        if writer is None or (self._per_file and writer.records >= self._per_file):
            writer = self._next()
        writer.write(record)
        self.records += 1

    def _next(self) -> recordio.Writer:
        if self._writer is not None:
            self._writer.close()
        file = self._folder / f"part-{len(self.files):05d}.recordio"
        self._writer = recordio.Writer(str(file), compressor=self._compression.value)
        self.files.append(file)
        return self._writer


def _put_in_order(source: ExampleSource, layout: FileLayout, scratch: Path) -> Iterator[bytes]:
    """Return the records in the order of the layout."""
    wanted = layout.shuffle
    if isinstance(source, Unordered):
        if wanted is not False:
            source.shuffle(layout.seed)
    elif wanted or (wanted is None and layout.split is not None):
        return shuffle(_readable(source), layout.seed, scratch)
    return _readable(source)


def _readable(source: ExampleSource) -> Iterator[bytes]:
    """The records; what the system says of a file that it does not read is about no output."""
    try:
        yield from source.records()
    except OSError as error:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"the source cannot be read: {error.strerror or error}",
            where=os.fsdecode(error.filename) if error.filename else "SRC",
            remedy=data_files.access(error),
        ) from error


@contextmanager
def _errors(output: Path) -> Iterator[None]:
    """Raise the errors of files and records as errors for the user."""
    try:
        yield
    except recordio.DamagedFile as error:
        raise EdlError(
            ErrorCode.DATA_DAMAGED,
            f"the source is damaged: {error.reason}",
            where=f"{error.uri}, offset {error.offset}",
            remedy="Download the complete file again.",
        ) from error
    except recordio.RecordError as error:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"the source cannot be converted: {error}",
            where=str(output),
            remedy="Correct the source.",
        ) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise EdlError(
            ErrorCode.DISK_FULL if full else ErrorCode.OUTPUT_UNWRITABLE,
            f"the output cannot be written: {error.strerror or error}",
            where=str(output),
            remedy="Free some space, or name another --to." if full else "Name another --to.",
        ) from error
