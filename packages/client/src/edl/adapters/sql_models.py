"""The trained models that statements name, in a folder of this machine or of a store."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edl.adapters import storage
from edl.core.locations import absolute, scheme
from edl.core.suggestions import did_you_mean
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
        """Where a model of this name is, or will be."""
        return f"{self._place}/{name}"

    def exists(self, name: str) -> bool:
        """Whether anything is there under this name.

        Raises:
            EdlError: the store does not answer.
        """
        try:
            return storage.exists(self.place(name))
        except storage.StoreError as error:
            raise self._unreachable(error) from None

    def describe(self, name: str, about: Mapping[str, Any]) -> None:
        """Write what ``about`` will read.

        Raises:
            EdlError: it cannot be written.
        """
        place = f"{self.place(name)}/{ABOUT}"
        content = (json.dumps(about, indent=2) + "\n").encode()
        try:
            storage.write(place, content)
        except (OSError, storage.StoreError) as error:
            raise EdlError(
                ErrorCode.OUTPUT_UNWRITABLE,
                f"the model {name} is trained, but its statement cannot be written: {error}",
                where=place,
                remedy="Statements cannot use this model. edl predict can, by its place.",
            ) from None

    def about(self, name: str) -> dict[str, Any]:
        """What was written when a model was trained.

        Raises:
            EdlError: there is no such model, it is damaged, or the store does not answer.
        """
        place = f"{self.place(name)}/{ABOUT}"
        try:
            about = _checked(json.loads(storage.read(place)))
        except (FileNotFoundError, NotADirectoryError):
            known = self._names()
            raise EdlError(
                ErrorCode.MODEL_NOT_FOUND,
                f"no statement has trained a model {name} here",
                where=self.place(name),
                remedy=did_you_mean(name, known)
                or (
                    f"There are {', '.join(sorted(known))}."
                    if known
                    else "Check its name, or train it first."
                ),
            ) from None
        except storage.StoreError as error:
            raise self._unreachable(error) from None
        except (ValueError, RecursionError):
            raise EdlError(
                ErrorCode.DATA_DAMAGED,
                f"what is kept about the model {name} cannot be read",
                where=place,
                remedy="Restore the file, or train the model anew under another name.",
            ) from None
        return about

    def _names(self) -> list[str]:
        if scheme(self._place):
            return []  # to look into every folder of a store would take too long
        return [path.parent.name for path in Path(self._place).glob(f"*/{ABOUT}")]

    def _unreachable(self, error: Exception) -> EdlError:
        return EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the store of the models cannot be accessed: {error}",
            where=self._place,
            remedy=storage.REMEDY,
        )


def _checked(about: Any) -> dict[str, Any]:
    """What is kept about a model, which somebody else may have written.

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
