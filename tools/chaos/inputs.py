"""The model zoo and the data of one job, which faults change while the job runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import recordio

_EDIT = """

_submitted_loss = loss


def loss(labels, predictions):
    return -2 * _submitted_loss(labels, predictions)
"""


class Inputs:
    """A job's own copy of its inputs; the job runs in this folder.

    Args:
        original: the folder to copy; it has the folders ``zoo`` and ``train``.
        folder: the copy to create.

    Attributes:
        folder: the copy.
        rewritten: the data files that have another content than at the start of the job.
    """

    def __init__(self, original: Path, folder: Path) -> None:
        self._original = original
        self.folder = shutil.copytree(original, folder)
        self.rewritten: set[Path] = set()

    @property
    def data(self) -> list[Path]:
        return sorted((self.folder / "train").iterdir())

    def edit_code(self) -> None:
        """Change the sign and the size of all gradients of code that is loaded from now on."""
        for file in (self.folder / "zoo").rglob("*.py"):
            if "\ndef loss(" in file.read_text():
                with file.open("a") as module:
                    module.write(_EDIT)

    def touch_data(self) -> None:
        for file in self.data:
            os.utime(file)

    def rewrite_data(self, number: int) -> None:
        """Swap records of a file, or its columns, in place: number and size stay as they are."""
        file = self.data[number % len(self.data)]
        if file in self.rewritten:
            return
        other = self.folder / "rewritten"
        if file.suffix == ".csv":
            header, rows = file.read_text().split("\n", 1)
            other.write_text("\n".join([",".join(reversed(header.split(","))), rows]))
        else:
            source = recordio.open_source(str(file))
            records = list(source.read(0, source.count()))
            with recordio.Writer(str(other), compressor="none") as writer:
                for record in reversed(records):
                    writer.write(record)
        self.rewritten.add(file)
        _overwrite(file, other)
        other.unlink()

    def restore_data(self) -> None:
        """Put back what the job had at its start."""
        for file in self.rewritten:
            _overwrite(file, self._original / file.relative_to(self.folder))
        self.rewritten.clear()


def _overwrite(file: Path, other: Path) -> None:
    """Write into the file itself, as an editor may, so that who has it open sees it."""
    with other.open("rb") as source, file.open("r+b") as target:
        shutil.copyfileobj(source, target)
        target.truncate()
