"""The trained models that statements name, in a folder of this machine or of a store.

What a statement knows about its model is written before the job starts, next to the model's place
and under the job's name, and into the model when the job has succeeded. If the command that waits
for the job is killed, the model names the job, and so finds what was written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edl.plugins.data import absolute, scheme, storage
from edl.plugins.jobs import trained_models
from edl.plugins.texts import did_you_mean
from edl_proto.errors import EdlError, ErrorCode

ABOUT = "statement.json"
"""In a trained model: the statement that trained it, and what its columns were."""


class SqlModels:
    """Trained models by their names.

    Args:
        place: the folder that holds them, as a path or the URI of a store.
    """

    def __init__(self, place: str) -> None:
        self._place = absolute(place, os.getcwd(), {}).rstrip("/")

    def place(self, name: str) -> str:
        """Return where a model of this name is, or will be."""
        return f"{self._place}/{name}"

    def exists(self, name: str) -> bool:
        """Return whether anything exists under this name.

        Raises:
            EdlError: the store does not answer.
        """
        try:
            return storage.exists(self.place(name))
        except storage.StoreError as error:
            raise self._unreachable(error) from None

    def check_writable(self, name: str) -> None:
        """Check that a store takes a model of this name; of a folder, its job does.

        Raises:
            EdlError: it does not.
        """
        if not scheme(self._place):
            return
        try:
            storage.check_writable(self.place(name))
        except storage.StoreError as error:
            raise self._unwritable(name, error) from None

    def replacement(self, name: str, job: str) -> str:
        """Return where a job writes a model that is to replace the one of this name.

        Raises:
            EdlError: a store has the models, which cannot exchange two of them at once.
        """
        if scheme(self._place):
            raise EdlError(
                ErrorCode.USAGE,
                f"there is a model {name} already, and a store cannot exchange models",
                where=self.place(name),
                remedy=f"Train under another name, or remove it first: DROP MODEL {name};",
            )
        return f"{self._place}/.{name}.{job}.replacement"

    def finish_replacements(self, name: str) -> None:
        """Replace a model whose replacement is complete, but whose statement was killed."""
        if scheme(self._place):
            return
        for job in self.find_announced_jobs(name):
            with contextlib.suppress(EdlError):
                if trained_models.read(self.replacement(name, job)).job == job:
                    self._replace(name, job)

    def announce(self, name: str, job: str, about: Mapping[str, Any]) -> None:
        """Write what ``read_description`` returns once the model of this job is there.

        Raises:
            EdlError: it cannot be written.
        """
        place = self._announcement(name, job)
        try:
            if not scheme(place):
                Path(place).parent.mkdir(parents=True, exist_ok=True)
            storage.write(place, _encode(about))
        except (OSError, storage.StoreError) as error:
            raise self._unwritable(name, error) from None

    def withdraw(self, name: str, job: str) -> None:
        """Remove what was announced: the job was not started, or its model is described."""
        if not scheme(self._place):
            shutil.rmtree(self.replacement(name, job), ignore_errors=True)
        with contextlib.suppress(FileNotFoundError, storage.StoreError):
            storage.remove_file(self._announcement(name, job))

    def find_announced_jobs(self, name: str) -> list[str]:
        """Return the jobs that were announced to train a model, whatever became of them.

        Raises:
            EdlError: the store does not answer.
        """
        pattern = re.compile(rf"\.{re.escape(name)}\.([^.]+)\.{re.escape(ABOUT)}")
        try:
            found = storage.names(self._place)
        except storage.StoreError as error:
            raise self._unreachable(error) from None
        return sorted(match[1] for match in map(pattern.fullmatch, found) if match)

    def write_description(self, name: str, job: str, about: Mapping[str, Any]) -> None:
        """Write into a trained model what ``read_description`` returns.

        The model that the job has written as a replacement replaces the one of this name.

        Raises:
            EdlError: it cannot be written.
        """
        if not scheme(self._place) and Path(self.replacement(name, job)).is_dir():
            self._replace(name, job)
            return
        place = f"{self.place(name)}/{ABOUT}"
        try:
            storage.write(place, _encode(about))
        except (OSError, storage.StoreError) as error:
            raise EdlError(
                ErrorCode.OUTPUT_UNWRITABLE,
                f"the model {name} is trained, but its statement cannot be written: "
                f"{getattr(error, 'strerror', None) or error}",
                where=place,
                remedy="The next statement that uses the model tries again.",
            ) from None
        self.withdraw(name, job)

    def read_description(self, name: str) -> dict[str, Any]:
        """Return what a statement wrote about the model that it trained.

        Raises:
            EdlError: there is no such model, it is damaged, or the store does not answer.
        """
        try:
            return self._read(name, f"{self.place(name)}/{ABOUT}")
        except (FileNotFoundError, NotADirectoryError):
            pass
        try:
            job = trained_models.read(self.place(name)).job
            about = self._read(name, self._announcement(name, job))
        except (FileNotFoundError, NotADirectoryError, EdlError):
            raise self._unknown(name) from None
        with contextlib.suppress(EdlError):  # read access is enough to use the model
            self.write_description(name, job, about)
        return about

    def describe_all(self) -> dict[str, dict[str, Any]]:
        """Return what statements wrote about each model that can be used, by name.

        Raises:
            EdlError: the store does not answer.
        """
        try:
            names = sorted(storage.names(self._place))
        except storage.StoreError as error:
            raise self._unreachable(error) from None
        found = {}
        for name in names:
            if not name.startswith("."):
                with contextlib.suppress(EdlError):
                    found[name] = self.read_description(name)
        return found

    def remove(self, name: str, successor: Path | None = None) -> None:
        """Remove a model; a folder has first a name that no statement finds.

        Args:
            successor: a folder that takes its place.

        Raises:
            EdlError: it cannot be removed.
        """
        place = self.place(name)
        try:
            if scheme(place):
                storage.remove(place)
            else:
                hidden = Path(f"{self._place}/.{name}.{secrets.token_hex(4)}.dropped")
                Path(place).rename(hidden)
                if successor:
                    successor.rename(place)
                shutil.rmtree(hidden)
        except (OSError, storage.StoreError) as error:
            raise EdlError(
                ErrorCode.OUTPUT_UNWRITABLE,
                f"the model cannot be removed: {getattr(error, 'strerror', None) or error}",
                where=place,
                remedy="Check the permissions of the folder of models.",
            ) from None

    def _replace(self, name: str, job: str) -> None:
        """Put the model that a job has written as a replacement in the place of its predecessor.

        Whenever this process is killed, one of both is complete, and the next call finishes it.

        Raises:
            EdlError: it cannot be renamed.
        """
        new, announcement = Path(self.replacement(name, job)), Path(self._announcement(name, job))
        try:
            with announcement.open() as about:
                fcntl.flock(about, fcntl.LOCK_EX)  # another process may be at the same
                if new.is_dir():
                    shutil.copyfile(announcement, new / ABOUT)
                    if self.exists(name):
                        self.remove(name, new)
                    else:
                        new.rename(self.place(name))
                announcement.unlink()
        except FileNotFoundError:  # another process has done it
            return
        except OSError as error:
            raise self._unwritable(name, error) from None

    def _read(self, name: str, place: str) -> dict[str, Any]:
        """Read the description of a model from a file.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no such file.
            EdlError: it is damaged, or the store does not answer.
        """
        try:
            return _check_description(json.loads(storage.read(place)))
        except storage.StoreError as error:
            raise self._unreachable(error) from None
        except (ValueError, RecursionError):
            raise EdlError(
                ErrorCode.DATA_DAMAGED,
                f"the description of the model {name} cannot be read",
                where=place,
                remedy="Restore the file, or train the model again under another name.",
            ) from None

    def _unknown(self, name: str) -> EdlError:
        is_there = self.exists(name)
        known = self._names()
        return EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"no statement has trained a model {name} here",
            where=self.place(name),
            remedy="This folder was not written by edl sql; edl predict --trained-model may still"
            " use it."
            if is_there
            else did_you_mean(name, known)
            or (
                f"There are {', '.join(sorted(known))}."
                if known
                else "Check its name, or train it first."
            ),
        )

    def _announcement(self, name: str, job: str) -> str:
        """Return the file, next to a model, that a job announces it in. No job's name has a dot."""
        return f"{self._place}/.{name}.{job}.{ABOUT}"

    def _names(self) -> list[str]:
        if scheme(self._place):
            return []  # to look into every folder of a store would take too long
        return [path.parent.name for path in Path(self._place).glob(f"*/{ABOUT}")]

    def _unwritable(self, name: str, error: OSError | storage.StoreError) -> EdlError:
        reason, remedy = str(error), "Name another folder or URI with --models."
        if isinstance(error, OSError):
            reason = error.strerror or reason
        else:
            remedy = error.remedy
        return EdlError(
            ErrorCode.OUTPUT_UNWRITABLE,
            f"no model can be written there: {reason}",
            where=self.place(name),
            remedy=remedy,
        )

    def _unreachable(self, error: storage.StoreError) -> EdlError:
        return EdlError(
            ErrorCode.SOURCE_UNREACHABLE,
            f"the store of the models cannot be accessed: {error}",
            where=self._place,
            remedy=error.remedy,
        )


def _encode(about: Mapping[str, Any]) -> bytes:
    return (json.dumps(about, indent=2) + "\n").encode()


def _check_description(about: Any) -> dict[str, Any]:
    """Return a model's description if it is valid; other programs may have written it.

    Raises:
        ValueError: something is missing, or of another kind.
    """
    match about:
        case {
            "statement": str(),
            "label": str(),
            "classes": list(classes),
            "is_classifier": bool(),
            "texts": dict(texts),
        } if all(isinstance(each, str) for each in classes) and all(
            isinstance(each, bool) for each in texts.values()
        ):
            return dict(about)
        case _:
            raise ValueError("it is not what edl sql writes")
