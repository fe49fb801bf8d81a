"""What lies in an image of tests beside Debian: packages from the cache of ``./dev``.

Nothing is downloaded twice on a machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import dev_cache
from tests.debian_base import PYTHON, Unavailable

_ROOT = Path(__file__).parents[1]
# Headers, static data and tools that no job touches: what is smaller is sooner pushed.
_DULL = ("tensorflow/include", "pyarrow/include", "bin")


def outside(packages: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the requirements of packages of this repository, without each other, sorted.

    Args:
        packages: the extras to take, by folder below ``packages/``.
    """
    wanted: set[str] = set()
    for name, extras in packages.items():
        project = tomllib.loads((_ROOT / "packages" / name / "pyproject.toml").read_text())
        optional = project["project"].get("optional-dependencies", {})
        wanted.update(project["project"]["dependencies"])
        for extra in extras:
            wanted.update(optional[extra])
    return sorted(each for each in wanted if not each.startswith("edl-"))


def install_outside(to: Path, wanted: list[str]) -> None:
    """Install requirements, with what they require, into a folder; raises ``Unavailable``."""
    _install(to, *wanted)
    for dull in _DULL:
        shutil.rmtree(to / dull, ignore_errors=True)


def install_own(to: Path, packages: Mapping[str, tuple[str, ...]]) -> None:
    """Install packages of this repository, alone, into a folder; raises ``Unavailable``."""
    _install(to, "--no-deps", *(str(_ROOT / "packages" / name) for name in packages))


def _install(to: Path, *what: str) -> None:
    kept = dev_cache.folder()
    uv = shutil.which("uv") or next(map(str, sorted(kept.glob("uv-*/bin/uv"))), "")
    if not uv:
        raise Unavailable("there is no uv; ./dev setup gets it")
    environment = {
        "UV_CACHE_DIR": str(kept / "packages"),
        "UV_SYSTEM_CERTS": "1",
        **os.environ,
        # Whatever becomes of the files' times.
        "PYC_INVALIDATION_MODE": "UNCHECKED_HASH",
    }
    command: list[Any] = [
        # Compiled here, since containers may write nothing: TensorFlow starts six seconds sooner.
        *(uv, "pip", "install", "--quiet", "--compile-bytecode"),
        *("--python", sys.executable, "--target", to),
        *("--python-version", PYTHON, "--no-build-isolation"),
        *("--constraint", _ROOT / "requirements.lock", *what),
    ]
    for offline in (["--offline"], []):
        done = subprocess.run(
            [*command, *offline],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if not done.returncode:
            return
    raise Unavailable(f"packages for an image cannot be had: {done.stderr[-500:]}")
