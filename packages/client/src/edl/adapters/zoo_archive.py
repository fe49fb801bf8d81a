"""The files of a model zoo: how many there are, and their archive; equal files, equal archives."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import IO

from edl.core.quantities import plural, size
from edl.core.submission import Submission
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.limits import MAX_ZOO_FILES, MAX_ZOO_NBYTES
from edl_runtime.model import zoo_files
from edl_runtime.model.zoo_files import ZooFiles

_MANY_NBYTES = 16_000_000
_MANY_FILES = 500
"""More than that is hardly a model's code: a person has to accept it."""


def files_of(job: Submission) -> ZooFiles:
    """What belongs to the model of a job whose zoo is a folder of this machine."""
    names = (
        *(job.model_def, job.input_fn, job.dataset_fn, job.loss, job.optimizer),
        *(job.eval_metrics_fn, job.feature_columns, job.label_columns),
    )
    return zoo_files.select(Path(job.model_zoo), filter(None, names))


def describe(files: ZooFiles) -> str:
    """How much of a zoo is copied, and what is not though the code names it."""
    line = f"model zoo: {plural(len(files.paths), 'file')}, {size(files.nbytes)}"
    if files.secrets:
        line += (
            f"; left out, since they look like secrets: {', '.join(files.secrets)}"
            f" (a line such as !{files.secrets[0]} in {zoo_files.IGNORE_FILE} includes one,"
            " unless it is a link that leads out of the zoo)"
        )
    return line


def check_amount(files: ZooFiles, folder: str, *, accepted: bool) -> None:
    """Raises: EdlError: LIMIT_EXCEEDED, if so much has to be accepted first."""
    if accepted or (files.nbytes <= _MANY_NBYTES and len(files.paths) <= _MANY_FILES):
        return
    raise EdlError(
        ErrorCode.LIMIT_EXCEEDED,
        f"{plural(len(files.paths), 'file')} of the model zoo, {size(files.nbytes)}, would be"
        " copied",
        where=folder,
        remedy=f"A file {zoo_files.IGNORE_FILE} in the zoo leaves files out, as .gitignore does;"
        " --yes accepts them.",
    )


def pack(folder: Path, into: IO[bytes]) -> None:
    """Write a folder as a tar archive in gzip.

    Raises:
        EdlError: LIMIT_EXCEEDED: this is more than a model zoo; MODEL_NOT_FOUND: a part of it
            cannot be read.
    """
    files = [folder / name for name in zoo_files.select(folder).paths]
    try:
        _check_size(folder, files)
        with (
            gzip.GzipFile(fileobj=into, mode="wb", compresslevel=5, mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in files:
                # A link's target may be no part of the archive.
                tar.add(path.resolve(), str(path.relative_to(folder)), filter=_plain)
    except OSError as error:
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the model zoo cannot be read: {error.strerror or error}",
            where=str(error.filename or folder),
            remedy="Check the permissions of this file, or remove it from the zoo.",
        ) from error


def _check_size(folder: Path, files: list[Path]) -> None:
    total = sum(path.stat().st_size for path in files)
    if total <= MAX_ZOO_NBYTES and len(files) <= MAX_ZOO_FILES:
        return
    largest = max(files, key=lambda path: path.stat().st_size)
    raise EdlError(
        ErrorCode.LIMIT_EXCEEDED,
        f"the model zoo has {len(files)} files, {size(total)}; the limit of an image is"
        f" {MAX_ZOO_FILES} files, {size(MAX_ZOO_NBYTES)}",
        where=str(largest if total > MAX_ZOO_NBYTES else folder),
        remedy="Move data out of the zoo and name it with --data, or name a smaller --model-zoo.",
    )


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without owners and times, which say nothing about the zoo."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry
