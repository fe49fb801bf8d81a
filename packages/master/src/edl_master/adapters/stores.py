"""Places in object stores, through fsspec; places on this machine are left to ``files``."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from edl_proto import outputs
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2


def is_store(place: str) -> bool:
    """Whether a place is a URI of a store: ``gs://``, ``s3://``, and what else fsspec knows."""
    return "://" in place and not place.startswith("file://")


def exists(uri: str) -> bool:
    """Whether anything is at a URI.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """
    try:
        system, path = _open(uri)
        return bool(system.exists(path))
    except Exception as error:  # a store's client has errors of its own
        raise unwritable(uri, error) from error


def check_writable(uri: str) -> None:
    """Write something beside a URI, and remove it again.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    try:
        system, path = _open(uri)
        parent, _, name = path.rpartition("/")
        probe = f"{parent}/.{name}.{uuid.uuid4().hex[:12]}.probe"
        system.makedirs(parent, exist_ok=True)
        system.pipe_file(probe, b"")
        system.rm_file(probe)
    except Exception as error:
        raise unwritable(uri, error) from error


def read(uri: str) -> bytes:
    """The content of an object; empty if there is none.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
    """
    try:
        system, path = _open(uri)
        return bytes(system.cat_file(path))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return b""
    except Exception as error:
        raise unwritable(uri, error) from error


def remove(uri: str) -> None:
    """Remove what is at a URI, if anything is.

    Raises:
        EdlError: OUTPUT_UNWRITABLE.
    """
    try:
        system, path = _open(uri)
        if system.exists(path):
            system.rm(path, recursive=True)
    except Exception as error:
        raise unwritable(uri, error) from error


def being_written_by(uri: str) -> str:
    """The job that writes a trained model to this place, or was killed when it did; or empty."""
    return read(outputs.note_beside(uri)).decode(errors="replace")


def put(local: Path, uri: str, job: str) -> None:
    """Copy a file or a directory to a URI, under another name first.

    A store has no atomic renaming of many objects, so a reader may see a directory grow; it
    never sees half a file.

    Args:
        local: what to copy.
        uri: where nothing is yet.
        job: that does this, alone; what it left when it was killed is overwritten.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; nothing is left behind.
    """
    try:
        system, path = _open(uri)
        parent, _, name = path.rpartition("/")
        beside = f"{parent}/.{name}.edl-{job}.tmp"
        recursive = local.is_dir()
        try:
            if system.exists(beside):
                system.rm(beside, recursive=True)
            system.put(f"{local}/" if recursive else str(local), beside, recursive=recursive)
            system.mv(beside, path, recursive=recursive)
        finally:
            if system.exists(beside):
                system.rm(beside, recursive=True)
    except Exception as error:
        raise unwritable(uri, error) from error


def unwritable(uri: str, error: Exception) -> EdlError:
    """What a store's own error means for a person."""
    return EdlError(
        error_pb2.OUTPUT_UNWRITABLE,
        f"{uri} cannot be written: {type(error).__name__}: {error}",
        where=uri,
        remedy="Check the name and your access; the store's package (s3fs, gcsfs, ...) has to be "
        "installed where the job runs.",
    )


def _open(uri: str) -> tuple[Any, str]:
    import fsspec

    system, path = fsspec.core.url_to_fs(uri.rstrip("/"))
    # Another process may have written since this one looked.
    system.invalidate_cache()
    return system, path
