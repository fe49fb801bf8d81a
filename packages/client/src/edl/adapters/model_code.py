"""Hashes the code of a model, and copies it for a job."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from edl.core.model_code import Listing, digest
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.files import flush
from edl_runtime.model import zoo_files
from edl_runtime.model.zoo_files import code_names

FOLDER = "code"
"""Of a job's directory: a folder for each copy, of which the specification names the current one.
"""


def hash_code(folder: Path, names: Iterable[str]) -> Listing:
    """Return the listing of the files of a zoo that belong to a model.

    Raises:
        EdlError: MODEL_NOT_FOUND; one cannot be read.
    """
    files = zoo_files.select(folder, names).paths
    return {path: _hash(_read(folder / path)) for path in files}


def copy_code(model: job_pb2.ModelSpec, into: Path, job_dir: Path) -> None:
    """Copy the zoo of a job into its directory, and record the copy in its specification.

    The copy has what belongs to the model and the other small files of the zoo, which code may
    find by itself. It lies below a new folder under the zoo's whole path, so that code that goes
    up from its own file fails by a name that its author knows.

    Args:
        into: the job's directory, perhaps before it gets its name.
        job_dir: its final path.

    Raises:
        EdlError: MODEL_NOT_FOUND; a file cannot be read.
        OSError: the copy cannot be written.
    """
    zoo = Path(model.model_zoo).resolve()
    names = code_names(partial(getattr, model))
    own = set(zoo_files.select(zoo, names).paths)
    chosen = own.union(zoo_files.select(zoo, names, others=True).paths)
    (into / FOLDER).mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="", dir=into / FOLDER))
    copy = Path(f"{root}{zoo}")
    copy.mkdir(parents=True)
    files = {}
    for path in sorted(chosen):
        content = _read(zoo / path)
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(content)
        flush(copy / path)
        if path in own:
            files[path] = _hash(content)
    for directory, _, _ in os.walk(into / FOLDER, topdown=False):
        flush(Path(directory))
    model.code.CopyFrom(
        job_pb2.ModelCode(
            sha256=digest(files),
            files=files,
            folder=str(zoo),
            copies=str(job_dir / FOLDER / root.name),
        )
    )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the model zoo cannot be read: {error.strerror or error}",
            where=str(path),
            remedy="Check the permissions of this file, or remove it from the zoo.",
        ) from error
