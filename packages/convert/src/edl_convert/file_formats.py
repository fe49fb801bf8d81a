"""Detection of the formats of files, by their names and first bytes."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NoReturn

import recordio
from edl.plugins.data import IMAGE_SUFFIXES, check_location, data_files, scheme, user_path
from edl.plugins.errors import usage
from edl_convert.formats import OTHER_IMAGE_SUFFIXES, SourceFormat
from edl_convert.images import OTHER_IMAGES, IdxSource, ImageFolderSource, is_idx
from edl_convert.records import RecordSource
from edl_convert.source import ConversionOptions, ExampleSource
from edl_convert.source_files import open_bytes
from edl_convert.tables import CsvTableSource, ParquetTableSource
from edl_proto.errors import EdlError, ErrorCode
from recordio.formats.detection import sniff
from recordio.storage.files import is_regular, local_path

_SUFFIXES = {
    ".csv": SourceFormat.CSV,
    ".tsv": SourceFormat.CSV,
    ".parquet": SourceFormat.PARQUET,
    ".pq": SourceFormat.PARQUET,
    ".tfrecord": SourceFormat.TFRECORD,
    ".tfrecords": SourceFormat.TFRECORD,
    ".recordio": SourceFormat.RECORDIO,
}
_NO_SOURCE = (".json",)
"""Ends of the names of files that a conversion writes next to records: schema and labels."""


def open_source(
    sources: Sequence[str], form: SourceFormat | None, options: ConversionOptions
) -> ExampleSource:
    """Open the records of files and folders.

    Args:
        sources: paths, URIs of a store, and globs of these; one folder of folders for images.
        form: their format; None: by name and content.

    Raises:
        EdlError, Problem: they are missing, unreadable, or not all of one format.
    """
    places = [place for source in sources for place in _find_places(source)]
    folders = [place for place in places if not scheme(place) and Path(place).is_dir()]
    if form is SourceFormat.IMAGES or (form is None and folders and _holds_images(folders[0])):
        if len(places) != 1 or not folders:
            raise usage(
                "images are converted from one folder, which holds a folder for each class",
                where=", ".join(sources),
                remedy="edl data convert photos --to data",
            )
        return ImageFolderSource(Path(folders[0]), options)
    files = [file for place in places for file in (_inside(place) if place in folders else [place])]
    form = form or _common_format(files, ", ".join(sources))
    match form:
        case SourceFormat.CSV:
            return CsvTableSource(files, options)
        case SourceFormat.PARQUET:
            return ParquetTableSource(files, options)
        case SourceFormat.IDX:
            return IdxSource([_require_local(file) for file in files], options)
        case _:
            return RecordSource(files, options, form.value)


def _common_format(files: Sequence[str], where: str) -> SourceFormat:
    """Return the format that all files have, by name and content.

    Raises:
        Problem: they are of several formats.
    """
    kinds = {file: detect(file) for file in files}
    if len(set(kinds.values())) > 1:
        named = ", ".join(sorted({kind.value for kind in kinds.values()}))
        raise usage(
            f"the files are of several formats: {named}",
            where=where,
            remedy="Convert each format by itself, or name the one with --format.",
        )
    return kinds[files[0]]


def _require_local(file: str) -> Path:
    """Return the path of a file of this machine.

    Raises:
        Problem: it is in a store.
    """
    if scheme(file):
        raise usage(
            "images and idx files are converted from folders of this machine",
            where=file,
            remedy="Download the files first.",
        )
    return Path(file)


def detect(file: str) -> SourceFormat:
    """Return the format of a file, by its name, else by its first bytes.

    Raises:
        EdlError: DATA_UNREADABLE.
    """
    suffix = PurePosixPath(file).suffix.lower()
    known = _SUFFIXES.get(suffix)
    if known is not None:
        return known
    if not scheme(file) and is_idx(Path(file)):
        return SourceFormat.IDX
    try:
        with open_bytes(file) as stream:
            if stream.read(4) == b"PAR1":
                return SourceFormat.PARQUET
        return SourceFormat(sniff(file))
    except OSError as error:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"the file cannot be read: {error.strerror}",
            where=file,
            remedy="Check its permissions.",
        ) from None
    except recordio.RecordError:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            "neither the name nor the first bytes of the file identify its format",
            where=file,
            remedy=_remedy(file, suffix),
        ) from None


_PANDAS = "Make a table of it first, with pandas: {0}(FILE).to_parquet(TABLE.parquet)."
_OF_PROGRAMS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "Save the sheet as CSV UTF-8."),
    **dict.fromkeys((".pkl", ".pickle"), _PANDAS.format("pandas.read_pickle")),
    **dict.fromkeys((".h5", ".hdf5"), _PANDAS.format("pandas.read_hdf")),
    ".feather": _PANDAS.format("pandas.read_feather"),
}
"""What to do with files of other programs, by suffix."""


def _remedy(file: str, suffix: str) -> str:
    """Return the remedy for a file of no known format."""
    if suffix in IMAGE_SUFFIXES:
        return data_files.conversion(file)
    if suffix in OTHER_IMAGE_SUFFIXES:
        return OTHER_IMAGES
    if suffix in data_files.ARRAY_SUFFIXES:
        return data_files.array_remedy(file)
    if not scheme(file) and data_files.holds_json(file):
        return data_files.json_remedy(file)
    if suffix in _OF_PROGRAMS:
        return f"{_OF_PROGRAMS[suffix]} Or name the format: --format {'|'.join(SourceFormat)}"
    return f"Name it: --format {'|'.join(SourceFormat)}"


def _find_places(source: str) -> list[str]:
    """Return the files and folders that a source names; for a folder in a store, its files.

    Raises:
        EdlError, Problem: there are none, it has no name, or one is neither.
    """
    if not source:
        raise usage(
            "the name of a source is empty",
            where="SRC",
            remedy="Name files or folders; . is the current folder.",
        )
    check_location(source, "SRC")
    if scheme(source) not in ("", "file"):
        return _find_stored(source)
    path = user_path(local_path(source))
    if path.exists() or path.is_symlink():
        found = [str(path)]
    else:
        found = list(map(str, sorted(map(Path, glob.glob(str(path), recursive=True)))))
    if not found:
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            f"{source} does not exist",
            where=str(path.absolute()),
            remedy="Name files, folders or patterns.",
        )
    for place in map(Path, found):
        if place.exists() and not (place.is_dir() or _is_regular(place)):
            raise EdlError(
                ErrorCode.DATA_UNREADABLE,
                "the path is neither a regular file nor a folder",
                where=str(place),
                remedy="Write the content to a file first.",
            )
    return found


def _is_regular(place: Path) -> bool:
    try:
        return is_regular(str(place))
    except OSError:  # it is told where the file is opened
        return True


def _find_stored(source: str) -> list[str]:
    """Return the objects that a URI names: one, those of a pattern, or those in a folder."""
    found = data_files.expand(source, "SRC")
    is_folder = PurePosixPath(found[0]).name != PurePosixPath(source).name
    if is_folder and not any(sign in source for sign in "*?["):
        # All of them: files of two formats are an error.
        found = data_files.expand(f"{source.rstrip('/')}/*", "SRC")
        found = [file for file in found if not file.endswith(_NO_SOURCE)]
    return found or _refuse_empty(source)


def _holds_images(folder: str) -> bool:
    return any(
        file.suffix.lower() in IMAGE_SUFFIXES | OTHER_IMAGE_SUFFIXES
        for place in Path(folder).iterdir()
        for file in (place.iterdir() if place.is_dir() else [place])
    )


def _inside(folder: str) -> list[str]:
    files = sorted(
        str(place)
        for place in Path(folder).iterdir()
        if place.is_file() and place.name[0] not in "._" and not place.name.endswith(_NO_SOURCE)
    )
    return files or _refuse_empty(folder)


def _refuse_empty(folder: str) -> NoReturn:
    raise EdlError(
        ErrorCode.DATA_EMPTY,
        "the folder contains no files",
        where=folder,
        remedy="Name a folder of data files, or of folders of images.",
    )
