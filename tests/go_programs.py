"""Programs from Go modules, built once per content of the module and Go version."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import dev_cache


@dataclass(frozen=True)
class GoPrograms:
    """Some programs of one module.

    Attributes:
        name: of their folder in the cache of ``./dev``.
        module: the folder of ``go.mod``, and of ``go.sum``, which says what the sources must be.
        packages: by the name of the program.
    """

    name: str
    module: Path
    packages: Mapping[str, str]

    def build(self, linker_flags: Callable[[], Sequence[str]] = tuple) -> Path:
        """The folder with all programs; only the first call on a machine takes long."""
        folder = self._folder()
        if self._missing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with dev_cache.lock(self.name):
                if missing := self._missing(folder):
                    self._compile(missing, folder, " ".join(("-s", "-w", *linker_flags())))
        return folder

    def is_built(self) -> bool:
        return not self._missing(self._folder())

    def _missing(self, folder: Path) -> list[str]:
        """The packages that are still to be built."""
        return [one for name, one in self.packages.items() if not (folder / name).is_file()]

    def _folder(self) -> Path:
        digest = hashlib.sha256(self.go("version").encode())
        for source in sorted((*self.module.glob("go.*"), *self.module.glob("*/*.go"))):
            digest.update(source.read_bytes())
        return dev_cache.folder() / self.name / digest.hexdigest()[:16]

    def go(self, *arguments: str) -> str:
        """Run a command of Go in the module's folder; return its output."""
        command = ("go", *arguments)
        run = subprocess.run(command, cwd=self.module, check=True, capture_output=True, text=True)
        return run.stdout.strip()

    def _compile(self, packages: list[str], folder: Path, linker_flags: str) -> None:
        """One build for all: the programs share most of their packages."""
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            subprocess.run(
                (
                    *("go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath"),
                    *("-ldflags", linker_flags, "-o", f"{unfinished}/", *packages),
                ),
                cwd=self.module,
                env={**os.environ, "CGO_ENABLED": "0"},
                check=True,
            )
            for program in Path(unfinished).iterdir():
                shutil.move(program, folder / program.name)
