"""Which format files have."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

import recordio
from edl.adapters import data_files
from edl.conversion.images import IdxSource, ImageFolderSource, is_idx
from edl.conversion.records import RecordSource
from edl.conversion.source import ConversionOptions, ExampleSource
from edl.conversion.tables import CsvTableSource, ParquetSource
from edl.core.formats import IMAGE_SUFFIXES, SourceFormat
from edl.core.problem import usage
from edl_proto.errors import EdlError, ErrorCode
from recordio.formats.detection import sniff

_SUFFIXES = {
    ".csv": SourceFormat.CSV,
    ".tsv": SourceFormat.CSV,
    ".parquet": SourceFormat.PARQUET,
    ".pq": SourceFormat.PARQUET,
    ".tfrecord": SourceFormat.TFRECORD,
    ".tfrecords": SourceFormat.TFRECORD,
    ".recordio": SourceFormat.RECORDIO,
}


def open_source(
    sources: Sequence[str], form: SourceFormat | None, options: ConversionOptions
) -> ExampleSource:
    """The records of files and folders.

    Args:
        sources: paths and globs; one folder of folders for images.
        form: their format; None: by name and content.

    Raises:
        EdlError, Problem: they are missing, unreadable, or not all of one format.
    """
    places = _places(sources)
    folders = [place for place in places if place.is_dir()]
    if form is SourceFormat.IMAGES or (form is None and folders and _holds_images(folders[0])):
        if len(places) != 1 or not folders:
            raise usage(
                "images are converted from one folder, which holds a folder for each class",
                where=", ".join(sources),
                remedy="edl data convert photos --to data",
            )
        return ImageFolderSource(folders[0], options)
    files = [file for place in places for file in (_inside(place) if place.is_dir() else [place])]
    if form is None:
        kinds = {file: detect(file) for file in files}
        if len(set(kinds.values())) > 1:
            named = ", ".join(sorted({kind.value for kind in kinds.values()}))
            raise usage(
                f"the files are of several formats: {named}",
                where=", ".join(sources),
                remedy="Convert each format by itself, or name the one with --format.",
            )
        form = kinds[files[0]]
    match form:
        case SourceFormat.CSV:
            return CsvTableSource(files, options)
        case SourceFormat.PARQUET:
            return ParquetSource(files, options)
        case SourceFormat.IDX:
            return IdxSource(files, options)
        case _:
            return RecordSource(files, options, form.value)


def _places(sources: Sequence[str]) -> list[Path]:
    """The files and folders that sources name.

    Raises:
        EdlError, Problem: one is missing, has no name, or is neither.
    """
    if "" in sources:
        raise usage(
            "a source has no name",
            where="SRC",
            remedy="Name files or folders; . is the current folder.",
        )
    places = [place for source in sources for place in _found(source)]
    for place in places:
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise EdlError(
                ErrorCode.DATA_UNREADABLE,
                "it is neither a regular file nor a folder",
                where=str(place),
                remedy="Write the content to a file first.",
            )
    return places


def detect(file: Path) -> SourceFormat:
    """The format of one file, by its name, else by its first bytes.

    Raises:
        EdlError: DATA_UNREADABLE.
    """
    known = _SUFFIXES.get(file.suffix.lower())
    if known is not None:
        return known
    if is_idx(file):
        return SourceFormat.IDX
    try:
        with file.open("rb") as stream:
            if stream.read(4) == b"PAR1":
                return SourceFormat.PARQUET
        return SourceFormat(sniff(str(file)))
    except OSError as error:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"the file cannot be read: {error.strerror}",
            where=str(file),
            remedy="Look at its permissions.",
        ) from None
    except recordio.RecordError:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            "neither the name nor the first bytes of the file identify its format",
            where=str(file),
            remedy=data_files.conversion(str(file))
            if file.suffix.lower() in IMAGE_SUFFIXES
            else f"Name it: --format {'|'.join(SourceFormat)}",
        ) from None


def _found(source: str) -> list[Path]:
    path = Path(source).expanduser()
    if path.exists() or path.is_symlink():
        return [path]
    found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
    if not found:
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            f"{source} does not exist",
            where=str(path.absolute()),
            remedy="Name files, folders or patterns of this machine.",
        )
    return found


def _holds_images(folder: Path) -> bool:
    return any(
        file.suffix.lower() in IMAGE_SUFFIXES
        for place in folder.iterdir()
        for file in (place.iterdir() if place.is_dir() else [place])
    )


def _inside(folder: Path) -> list[Path]:
    files = sorted(
        place for place in folder.iterdir() if place.is_file() and place.name[0] not in "._"
    )
    if not files:
        raise EdlError(
            ErrorCode.DATA_EMPTY,
            "the folder contains no files",
            where=str(folder),
            remedy="Name a folder of data files, or of folders of images.",
        )
    return files
