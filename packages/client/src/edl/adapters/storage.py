"""Files and folders by path or URI."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from edl.core.locations import scheme
from recordio.storage import uploads
from recordio.storage.files import is_regular
from recordio.storage.store_errors import reason_of, remedy_of
from recordio.storage.stores import filesystem


class StoreError(Exception):
    """A store could not be asked: no such scheme, no access, no network.

    Args:
        error: of the store's client.

    Attributes:
        remedy: what a person can do about it.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(reason_of(error))
        self.remedy = remedy_of(error)


def exists(place: str) -> bool:
    """Return whether a file or folder exists. Raises: StoreError: the store does not answer."""
    if not scheme(place):
        return os.path.lexists(place)
    try:
        system, path = filesystem(place.rstrip("/"))
        return bool(system.exists(path))
    except Exception as error:  # a store's client has errors of its own
        raise StoreError(error) from error


def read(place: str, most: int | None = None) -> bytes:
    """Return the content of a file.

    Args:
        most: bytes that it may have; None: any number.

    Raises:
        OSError: it is not there, is too large, or cannot be read.
        StoreError: the store cannot be asked.
    """
    if not scheme(place):
        if not is_regular(place):  # to read it may take forever
            raise OSError(errno.EINVAL, "the path is not a regular file", place)
        _check_size(place, os.path.getsize(place), most)
        return Path(place).read_bytes()
    try:
        system, path = filesystem(place.rstrip("/"))
        size = system.size(path) if most is not None else None
        content: bytes = b"" if _is_more(size, most) else system.cat_file(path)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise StoreError(error) from error
    _check_size(place, size, most)
    return content


def _is_more(size: int | None, most: int | None) -> bool:
    return size is not None and most is not None and size > most


def _check_size(place: str, size: int | None, most: int | None) -> None:
    """Raises: OSError: a file is too large."""
    if _is_more(size, most):
        raise OSError(errno.EFBIG, f"it has {size} bytes, more than {most}", place)


def write(place: str, content: bytes) -> None:
    """Write a whole file into a folder that is there; in a store, folders come with their files.

    Raises:
        OSError: it cannot be written.
        StoreError: the store cannot be asked.
    """
    if not scheme(place):
        Path(place).write_bytes(content)
        return
    try:
        system, path = filesystem(place)
        system.pipe_file(path, content)
    except Exception as error:
        raise StoreError(error) from error


def check_writable(place: str) -> None:
    """Write something next to a place in a store, and remove it again.

    Raises:
        StoreError: the store does not take it.
    """
    parent, _, name = place.rstrip("/").rpartition("/")
    probe = f"{parent}/.{name}.{secrets.token_hex(6)}.probe"
    write(probe, b"")
    remove(probe)


def remove(place: str) -> None:
    """Remove what is at a place in a store.

    Raises:
        StoreError: nothing is, or the store does not do it.
    """
    try:
        system, path = filesystem(place.rstrip("/"))
        system.rm(path, recursive=True)
    except Exception as error:
        raise StoreError(error) from error


def remove_file(place: str) -> None:
    """Remove a file.

    Raises:
        FileNotFoundError: there is none.
        StoreError: it cannot be removed.
    """
    try:
        if not scheme(place):
            os.unlink(place)
            return
        system, path = filesystem(place)
        system.rm_file(path)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise StoreError(error) from error


def names(folder: str) -> list[str]:
    """Return the names in a folder; none if there is no such folder.

    Raises:
        StoreError: it cannot be listed.
    """
    try:
        if not scheme(folder):
            return os.listdir(folder)
        system, path = filesystem(folder.rstrip("/"))
        return [str(each).rstrip("/").rpartition("/")[2] for each in system.ls(path, detail=False)]
    except FileNotFoundError:
        return []
    except Exception as error:
        raise StoreError(error) from error


def send(local: Path, place: str) -> None:
    """Copy a file or a folder of this machine to a store.

    Raises:
        StoreError: the store does not take it.
    """
    try:
        system, path = filesystem(place.rstrip("/"))
        uploads.send_persistently(system, local, path)
    except Exception as error:
        raise StoreError(error) from error


def fetch(place: str, target: Path) -> None:
    """Copy a file of a store to this machine.

    Raises:
        FileNotFoundError: it is not there.
        StoreError: the store cannot be asked.
    """
    try:
        system, path = filesystem(place)
        system.get_file(path, str(target))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise StoreError(error) from error
