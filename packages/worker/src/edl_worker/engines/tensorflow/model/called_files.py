"""The files that a dataset function reads when it is called, such as a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edl_worker.core.layer_state import LayerState
from edl_worker.engines.tensorflow.model.opened_files import note_opened_files
from edl_worker.model_file.zoo.outside_files import (
    OutsideFiles,
    describe_changes,
    note_outside_files,
)


class CalledFiles:
    """The files that a function reads by its first call, which makes the pipeline.

    What it reads record by record, such as images, is data.

    Args:
        root: folder of the zoo.
        submitted: the folder that was submitted, if the zoo is a copy of it.
        saved: the states of a trained model.
    """

    def __init__(
        self,
        root: Path = Path(),
        submitted: Path | None = None,
        saved: Sequence[LayerState] = (),
    ) -> None:
        self._files = OutsideFiles(submitted)
        self._root = root
        self._saved = tuple(saved)

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Note the files that are read while the context lasts."""
        with note_outside_files(self._files, str(self._root)), note_opened_files():
            yield

    def states(self, known: Sequence[LayerState] = ()) -> tuple[LayerState, ...]:
        """Return a digest of each file, but for those that are known."""
        names = {state.name for state in known}
        return tuple(each for each in self._files.read(self._root) if each.name not in names)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning for each file, and for each that has changed since the training."""
        return (*self._files.describe(), *describe_changes(self.states(), self._saved))
