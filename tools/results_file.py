"""Results of long measurements, kept in a file: a later call continues where one has ended."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class ResultsFile:
    """One JSON object on each line: what was measured, its result, and of which commit.

    Args:
        path: of the file, which need not exist; None keeps the results of this process alone.
        names: the fields that say what was measured.
    """

    def __init__(self, path: Path | None, names: tuple[str, ...]) -> None:
        self._path = path
        self._names = names
        self._lock = threading.Lock()
        self._found: dict[tuple[Hashable, ...], dict[str, Any]] = {}
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        for line in lines:
            row = json.loads(line)
            self._found[tuple(row[name] for name in names)] = row

    def find(self, **what: Hashable) -> dict[str, Any] | None:
        """The newest result of this; None if it has to be measured."""
        return self._found.get(self._key(what))

    def add(self, result: Mapping[str, Any], **what: Hashable) -> None:
        """Keep a result, also if this process is killed later."""
        row = {**what, **result, "commit": _commit()}
        with self._lock:
            self._found[self._key(what)] = row
            if self._path is None:
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _key(self, what: Mapping[str, Hashable]) -> tuple[Hashable, ...]:
        return tuple(what[name] for name in self._names)


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
