"""Jobs whose workers do not come to an end with their model file before a test lets them."""

from __future__ import annotations

import shutil
from pathlib import Path

from conftest import ROOT, Edl


class HeldLoading:
    """The counting model, in a file that no worker finishes to load until it is released.

    Until then no worker has described the model, so there is nothing to keep a snapshot of.
    """

    def __init__(self, edl: Edl, place: Path) -> None:
        self._zoo = place / "loading-zoo"
        self._zoo.mkdir()
        for source in ("model_zoo/counting.py", "tests/zoo/loading.py"):
            shutil.copy(ROOT / source, self._zoo)
        self._file = place / "loading"
        self._file.touch()
        edl.env["EDL_TEST_LOADING"] = str(self._file)

    def waiting(self) -> set[int]:
        """Process numbers of the workers that have come to the model file, living or not."""
        return {int(pid) for pid in self._file.read_text().splitlines()}

    def release(self) -> None:
        """Let the workers of now and of later load the model."""
        self._file.unlink()

    def train(
        self, data: Path, total: int, output: Path, *more: str, epochs: int
    ) -> tuple[str, ...]:
        """The command line of a job on ``total`` numbered records."""
        return (
            *("train", "--model-zoo", str(self._zoo), "--model-def", "loading.model"),
            *("--params", f"size={total}", "--data", str(data), "--num-epochs", str(epochs)),
            *("--minibatch-size", "16", "--records-per-task", "100"),
            *("--output", str(output), "-o", "json", *more),
        )
