"""Numbered releases in a folder of this machine, or of a store."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from edl.core.locations import scheme
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.releases import read_numbers
from edl_runtime.model.trained_model import TRAINED_MODEL
from recordio.storage.store_errors import reason_of, remedy_of
from recordio.storage.stores import filesystem
from recordio.storage.uploads import send_persistently


class _Releases:
    """The names of releases in a folder, wherever it is, and their comparison with a model."""

    def __init__(self, place: str) -> None:
        self._place = place.rstrip("/")

    def place_of(self, number: int) -> str:
        return f"{self._place}/{number}"

    def has(self, number: int, model: str) -> bool:
        return _describe(self.place_of(number)) == _describe(model)


class ReleasesOnDisk(_Releases):
    """Releases in a folder of this machine. See ``ports.release_folder``."""

    def list(self) -> list[int]:
        try:
            return read_numbers(entry.name for entry in os.scandir(self._place) if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unwritable(self._place, f"{error.strerror}", "Choose another --to.") from error

    def add(self, number: int, model: str) -> None:
        hidden = os.path.join(self._place, f".{number}.tmp")
        shutil.rmtree(hidden, ignore_errors=True)
        try:
            os.makedirs(self._place, exist_ok=True)
            _fetch(model, hidden)
            os.rename(hidden, self.place_of(number))
        except OSError as error:
            shutil.rmtree(hidden, ignore_errors=True)
            raise _unwritable(hidden, f"{error.strerror}", "Choose another --to.") from error

    def remove(self, number: int) -> None:
        place = self.place_of(number)
        # A server that looks meanwhile sees all of the release, or nothing.
        hidden = os.path.join(self._place, f".{number}.removed")
        try:
            os.rename(place, hidden)
            if os.path.islink(hidden):  # a user's own, to a model elsewhere
                os.unlink(hidden)
            else:
                shutil.rmtree(hidden)
        except OSError as error:
            raise _unwritable(place, f"{error.strerror}", "Remove it yourself.") from error


class StoredReleases(_Releases):
    """Releases in a store. See ``ports.release_folder``."""

    def list(self) -> list[int]:
        try:
            system, path = filesystem(self._place)
            if not system.exists(path):
                return []
            entries = system.ls(path, detail=True)
        except Exception as error:  # a store's client has errors of its own
            raise _unwritable(self._place, reason_of(error), remedy_of(error)) from error
        names = (entry["name"] for entry in entries if entry["type"] == "directory")
        return read_numbers(name.rstrip("/").rpartition("/")[2] for name in names)

    def add(self, number: int, model: str) -> None:
        place = self.place_of(number)
        with tempfile.TemporaryDirectory(prefix="edl-release-") as folder:
            local = Path(folder) / "model"
            _fetch(model, str(local))
            description = (local / TRAINED_MODEL).rename(Path(folder) / TRAINED_MODEL)
            try:
                system, path = filesystem(place)
                send_persistently(system, local, path)
                # It tells servers that the release is whole.
                system.put_file(str(description), f"{path}/{TRAINED_MODEL}")
            except Exception as error:  # a store's client has errors of its own
                raise _unwritable(place, reason_of(error), remedy_of(error)) from error

    def remove(self, number: int) -> None:
        place = self.place_of(number)
        try:
            system, path = filesystem(place)
            system.rm(path, recursive=True)
        except Exception as error:  # a store's client has errors of its own
            raise _unwritable(place, reason_of(error), remedy_of(error)) from error


def _describe(model: str) -> bytes:
    """Return the description of a trained model, which names the moment of its writing."""
    try:
        system, path = filesystem(model)
        return bytes(system.cat_file(f"{path}/{TRAINED_MODEL}"))
    except Exception as error:  # a store's client has errors of its own
        raise _unwritable(model, reason_of(error), remedy_of(error)) from error


def _fetch(model: str, folder: str) -> None:
    """Copy a trained model into a new folder of this machine."""
    if not scheme(model):
        shutil.copytree(model, folder)
        return
    try:
        system, path = filesystem(model)
        system.get(path, folder, recursive=True)
    except Exception as error:  # a store's client has errors of its own
        raise _unwritable(model, reason_of(error), remedy_of(error)) from error


def open_releases(place: str) -> ReleasesOnDisk | StoredReleases:
    """Return the folder at a path or a URI."""
    return StoredReleases(place) if scheme(place) else ReleasesOnDisk(place)


def _unwritable(place: str, reason: str, remedy: str) -> EdlError:
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"the releases cannot be kept: {reason}",
        where=place,
        remedy=remedy,
    )
