"""A model that is served in its last release, while a job goes on to train it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.releases import read_numbers
from edl_runtime.model.trained_model import TRAINED_MODEL
from edl_serve.instances import EncodedInstances
from edl_serve.served_model import Predictor
from recordio.description import DataDescription
from recordio.storage.files import local_path
from recordio.storage.stores import filesystem

log = logging.getLogger(__name__)

POLL_S = 2.0
"""Seconds between two looks for a new release."""

ATTEMPTS = 3
"""Attempts to load a release: a store may fail for a moment."""


def list_releases(place: str) -> list[int]:
    """Return the numbers of the releases in a folder, ascending; none if it is a trained model.

    Raises:
        EdlError: DATA_UNREADABLE.
    """
    try:
        system, path = filesystem(local_path(place))
        if not system.isdir(path) or system.exists(f"{path}/{TRAINED_MODEL}"):
            return []
        names = (str(each).rstrip("/").rpartition("/")[2] for each in system.ls(path, detail=False))
        # In a store the description comes last.
        return [
            number
            for number in read_numbers(names)
            if system.exists(f"{path}/{number}/{TRAINED_MODEL}")
        ]
    except EdlError:
        raise
    except Exception as error:  # a store's client has errors of its own
        raise EdlError(
            ErrorCode.DATA_UNREADABLE,
            f"the releases cannot be listed: {error}",
            where=place,
            remedy="Check the folder, and your access to it.",
        ) from error


class LastRelease:
    """The model of the last release of a folder; it is replaced while requests are answered.

    Args:
        place: the folder of the releases, which has one.
        open_model: opens the model at a place.
    """

    def __init__(self, place: str, open_model: Callable[[str], Predictor]) -> None:
        self._place = place.rstrip("/")
        self._open = open_model
        self.version = list_releases(place)[-1]
        self._model = open_model(self._place_of(self.version))
        self._records: EncodedInstances | None = None

    def _place_of(self, number: int) -> str:
        return f"{self._place}/{number}"

    @property
    def data(self) -> DataDescription | None:
        """The data that the model was trained on; None: not known."""
        return self._model.data

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts about the model, as JSON-able values."""
        return self._model.about

    def prepare(self) -> None:
        """Import the framework, which takes seconds."""
        self._model.prepare()

    def predict(self, records: EncodedInstances) -> list[dict[str, Any]]:
        """Return the outputs of the model for each record, by name. See ``Predictor``."""
        found = self._model.predict(records)
        self._records = records
        return found

    def follow(self, over: threading.Event) -> None:
        """Serve new releases as they come, until the event is set."""
        attempts: Counter[int] = Counter()
        while not over.wait(POLL_S):
            try:
                last = max(list_releases(self._place), default=0)
                if last > self.version and attempts[last] < ATTEMPTS:
                    attempts[last] += 1
                    self._take(last)
            except Exception as error:  # also of a model's own code: later releases should come
                log.warning("release %d stays: %s", self.version, error)

    def _take(self, number: int) -> None:
        model = self._open(self._place_of(number))
        if self._records is not None:
            model.predict(self._records)  # loads it, so that no request waits for that
        self._model, self.version = model, number
        log.warning("release %d is served now", number)
