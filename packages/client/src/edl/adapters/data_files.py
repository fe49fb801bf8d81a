"""Checks data before a job starts."""

from __future__ import annotations

import errno
import glob
import os
import shlex
import zipfile
from collections.abc import Iterable, Sequence

import recordio
import recordio.example
from edl import codec
from edl.core import locations
from edl.core.data_layout import DELIMITERS, IMAGE_SUFFIXES
from edl.core.locations import scheme
from edl.core.problem import Problem
from edl.core.suggestions import did_you_mean
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.trained_model import TRAINED_MODEL
from edl_runtime.public_settings import without_passwords
from recordio.formats.csvfile import is_json
from recordio.formats.detection import named_format, sniff
from recordio.kafka.addresses import is_kafka
from recordio.storage.files import is_regular
from recordio.storage.store_errors import reason_of, remedy_of

CSV = "csv"
_CONVERTED = (".tsv", "-ubyte.gz")
ARRAY_SUFFIXES = (".npz", ".npy")
_ACCESS = "Check its name, its permissions, and access to its store."
_DISK = "The disk cannot read this file; restore it from a copy, and see the kernel log."
_KAFKA = (
    "Check host, port and topic; EDL_KAFKA_CONFIG names a file with the settings of the connection."
)
_SPECIAL = "Write the content to a regular file first."
_NO_TABLES = (
    (
        b"version https://git-lfs",
        "the file is a pointer of Git LFS, not the table itself",
        "git lfs pull fetches the table.",
    ),
    (b"<!doctype html", "the file is a page of the web, not a table", "Download it again."),
    (b"<html", "the file is a page of the web, not a table", "Download it again."),
)
_PROBE_BYTES = 4096  # of a file that may be JSON
_LOOKED_AT = 100
"""Records: one of them may lack a feature that others have."""
_SAMPLES = 4  # blocks of a file, besides its first one, that a check reads


def check(patterns: Iterable[str], form: str, option: str) -> None:
    """Check that every pattern names readable files of one kind, and that not all are empty.

    Args:
        form: format that the user says the files have; empty: by content.

    Raises:
        EdlError: DATA_NOT_FOUND, DATA_UNREADABLE or DATA_EMPTY.
    """
    kinds: dict[str, str] = {}
    for pattern in patterns:
        _refuse_model(pattern, option)
        files = expand(pattern, option)
        sizes = [readable_size(file, option) for file in files]
        if not any(sizes):
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            raise EdlError(
                ErrorCode.DATA_EMPTY,
                f"{option} names only files without records",
                where=files[0] + more,
                remedy="Name files that contain records.",
            )
        for number, file in enumerate(files):
            # To look into each file of a store would take long; the master will.
            is_probed = number == 0 or not scheme(file) or named_format(file)
            if not form and is_probed and (kind := _check_format(file, option)):
                kinds.setdefault(kind, file)
    if len(kinds) > 1 and CSV in kinds:
        table, other = kinds.pop(CSV), next(iter(kinds))
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"{option} names files of two kinds: rows of CSV, and records ({other})",
            where=f"{table} and {kinds[other]}",
            remedy="Name files of one kind: a pattern such as 'data/*.csv', or "
            f"edl data convert {shlex.quote(table)} --to data",
        )


def _refuse_model(place: str, option: str) -> None:
    """Refuse the folder of a trained model of this machine, whose files are no data."""
    if not scheme(place) and os.path.isfile(os.path.join(place, TRAINED_MODEL)):
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"{option} names a trained model, and not data",
            where=place,
            remedy=f"Name files of records: {option} 'data/*.recordio'; a model goes to "
            "--trained-model or --init-from.",
        )


def check_features(patterns: Iterable[str], form: str, names: Sequence[str]) -> None:
    """Check that records have features of these names, or columns if they are rows of a table.

    Only the first file of each pattern is looked at, and some of its records. Data in a store is
    not: this machine may lack the credentials.

    Raises:
        EdlError: USAGE.
    """
    for pattern in patterns if names else ():
        file = expand(pattern, "--data")[0]
        if scheme(file):
            continue
        try:
            there = _features(recordio.open_source(file, format=form or None))
        except recordio.RecordError:
            continue  # the job will tell where the data is damaged
        for name in names:
            if there and name not in there:
                raise EdlError(
                    ErrorCode.USAGE,
                    f"--keep {name}: the records have no such column or feature",
                    where=file,
                    remedy=did_you_mean(name, there) or f"They have {', '.join(there)}.",
                )


def _features(source: recordio.Source) -> list[str]:
    """Return the names of columns, or of the features of the first records."""
    if source.columns is not None:
        return list(source.columns)
    names: set[str] = set()
    for record in source.read(0, _LOOKED_AT):
        names.update(recordio.example.decode(record))
    return sorted(names)


def check_records(patterns: Iterable[str], form: str, option: str) -> None:
    """Read the index of every local file, and some of its records with their checksums.

    Raises:
        EdlError: DATA_DAMAGED or DATA_UNREADABLE.
    """
    for pattern in patterns:
        for file in expand(pattern, option):
            if scheme(file):
                continue
            try:
                source = recordio.open_source(file, format=form or None)
                index = source.index()
                last = len(index.first_records) - 1
                for block in sorted({last * part // _SAMPLES for part in range(_SAMPLES + 1)}):
                    first = index.first_records[block] if last >= 0 else 0
                    for _ in source.read(first, first + 1, hint=index.block(first)):
                        pass
            except recordio.RecordError as error:
                raise record_error(error, file) from None


def record_error(error: recordio.RecordError, file: str) -> EdlError:
    """Return the error for a file whose records cannot be read."""
    if isinstance(error, recordio.NoHeader):
        return EdlError(
            ErrorCode.DATA_UNREADABLE, error.reason, where=f"{error.uri}:1", remedy=error.remedy
        )
    if isinstance(error, recordio.DamagedFile):
        chunk = "" if error.chunk is None else f"{error.unit} {error.chunk}, "
        return EdlError(
            ErrorCode.DATA_DAMAGED,
            f"the file is damaged: {error.reason}",
            where=f"{error.uri}: {chunk}offset {error.offset}",
            remedy="Fetch or write it again; the records before this offset can be read."
            if error.offset
            else "Correct the file, or fetch it again.",
        )
    return EdlError(
        ErrorCode.DATA_UNREADABLE,
        str(error),
        where=file,
        remedy=_remedy(error, file),
    )


def _remedy(error: recordio.RecordError, file: str) -> str:
    """Return what to do with an intact file that cannot be read as records."""
    if isinstance(error, recordio.MissingPackage):
        return f"pip install {error.package}"
    if isinstance(error, recordio.UnreadableFile):
        if scheme(file):
            return remedy_of(error)
        special = error.__cause__ is None or os.path.isdir(file)
        return _SPECIAL if special else access(error.__cause__)
    if _is_converted(file):
        return conversion(file)
    return f"Name its format: edl data convert {shlex.quote(file)} --format FORMAT --to data"


def access(reason: BaseException | None) -> str:
    """Return what to do with a file that the system does not open or read, for this reason."""
    is_broken = isinstance(reason, OSError) and reason.errno == errno.EIO
    return _DISK if is_broken else _ACCESS


def expand(pattern: str, option: str) -> list[str]:
    """Return the files that a pattern names.

    Raises:
        EdlError: DATA_NOT_FOUND or DATA_UNREADABLE.
    """
    try:
        locations.check(pattern, option)
        return recordio.expand(pattern)
    except Problem as problem:
        raise codec.error_of(problem) from None
    except recordio.NoSuchData as error:
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            f"{option}: {error}",
            where=pattern,
            remedy=(_KAFKA if is_kafka(pattern) else _images(pattern))
            or "Correct the pattern."
            + (f" Repeat {option} for several patterns." if "," in pattern else ""),
        ) from None
    except recordio.MissingPackage as error:
        raise _unreadable(str(error), pattern, option, f"pip install {error.package}") from None
    except recordio.RecordError as error:
        if is_kafka(pattern):
            raise _unreadable(str(error), pattern, option, _KAFKA) from None
        raise _unreadable(error, pattern, option) from None
    except Exception as error:
        # A store's client has errors of its own: no such bucket, no credentials, no network.
        raise _unreadable(error, pattern, option) from error


def readable_size(file: str, option: str) -> int:
    """Return the size of a local file in bytes; 1 for a file in a store, which was listed.

    Raises:
        EdlError: DATA_UNREADABLE; it is a pipe, for example.
    """
    if scheme(file):
        return 1
    try:
        if not is_regular(file):  # to read it may take forever
            raise _unreadable("the path is not a regular file", file, option, _SPECIAL)
        with open(file, "rb"):
            return os.path.getsize(file)
    except OSError as error:
        raise _unreadable(f"{error.strerror}", file, option) from None


def _images(pattern: str) -> str:
    """Return what to do with a folder of folders of images; empty for all others."""
    if scheme(pattern) or not os.path.isdir(pattern):
        return ""
    names = glob.iglob(os.path.join(glob.escape(pattern), "*", "*"))
    return conversion(pattern) if any(map(_is_image, names)) else ""


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _is_converted(name: str) -> bool:
    """Return whether a name is that of a file that only ``edl data convert`` reads."""
    return _is_image(name) or name.endswith(_CONVERTED)


def conversion(place: str) -> str:
    """Return what to do with data that a job cannot read, but ``edl data convert`` can."""
    if _is_image(place):
        # The folder of an image is its class; the folder above holds the classes.
        place = os.path.dirname(os.path.dirname(place)) or "."
    return f"Convert it first: edl data convert {shlex.quote(place)} --to data"


def _check_format(file: str, option: str) -> str:
    """Return the format of a file; empty if only the master can tell.

    Raises:
        EdlError: DATA_UNREADABLE or DATA_DAMAGED.
    """
    try:
        form = sniff(file)
        if form == CSV and not scheme(file):
            _check_delimiter(file, option)
        return form
    except recordio.RecordError as error:
        if scheme(file):
            return ""  # the master will check; this machine may lack the credentials
        if isinstance(error, recordio.DamagedFile) and not holds_json(file):
            raise record_error(error, file) from error
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"{option}: {error}",
            where=file,
            remedy=_remedy_for_content(file),
        ) from None


def _remedy_for_content(file: str) -> str:
    """Return what to do with a file of this machine that no job can read."""
    if holds_json(file):
        return json_remedy(file)
    if _is_converted(file):
        return conversion(file)
    if file.endswith(ARRAY_SUFFIXES):
        return array_remedy(file)
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
        if any(name.startswith("xl/") or name == "content.xml" for name in names):
            return "It is a workbook of Excel or LibreOffice: save the sheet as CSV UTF-8."
        return "It is a zip archive: unpack it."
    return "Name the format with --data-format, or convert the data with edl data convert."


def holds_json(file: str) -> bool:
    """Tell whether a file of this machine begins as JSON does."""
    with open(file, "rb") as content:
        return is_json(content.read(_PROBE_BYTES))


def array_remedy(file: str) -> str:
    """Return what to do with arrays of NumPy."""
    records = f"{os.path.splitext(file)[0]}.recordio"
    return (
        "It holds arrays of NumPy. Write their rows as records, in Python: "
        f"with recordio.Writer({records!r}) as writer: [writer.write(recordio.example.encode("
        '{"x": x.ravel(), "label": y})) for x, y in zip(xs, ys)]'
    )


def json_remedy(file: str) -> str:
    """Return what to do with JSON Lines."""
    table = f"{os.path.splitext(file)[0]}.parquet"
    return (
        "Make a table of it first, with pandas for example: "
        f"pandas.read_json({file!r}, lines=True).to_parquet({table!r}); jobs read Parquet"
    )


def _check_delimiter(file: str, option: str) -> None:
    """Refuse what is no table, or has one column with a name such as ``a;b;c``."""
    with open(file, "rb") as content:
        begin = content.read(_PROBE_BYTES).lstrip()
    for sign, what, remedy in _NO_TABLES:
        if begin.lower().startswith(sign):
            raise EdlError(
                ErrorCode.DATA_UNREADABLE, f"{option}: {what}", where=f"{file}:1", remedy=remedy
            )
    columns = recordio.open_source(file, format="csv").columns or ()
    other = next((sign for sign in DELIMITERS[1:] if len(columns) == 1 and sign in columns[0]), "")
    if other:
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"{option}: the columns are separated by {other!r}; jobs read commas",
            where=file,
            remedy=conversion(file),
        )


def _unreadable(error: object, where: str, option: str, remedy: str = _ACCESS) -> EdlError:
    reason = str(error)
    if isinstance(error, Exception) and scheme(where):
        reason, remedy = reason_of(error), remedy_of(error)
    return EdlError(
        ErrorCode.DATA_UNREADABLE,
        f"{option} cannot be read: {reason}",
        where=without_passwords(where),
        remedy=remedy,
    )
