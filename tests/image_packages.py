"""What lies in an image of tests: Debian, packages from the cache of ``./dev``, and our own.

Each layer is a tar file, kept under the hash of what determines it: nothing is downloaded or
compiled twice on a machine.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests import debian_base, dev_cache
from tests.debian_base import PYTHON, SITE, Unavailable

Layer = tuple[Path, str]
"""A tar file and its SHA-256."""

_ROOT = Path(__file__).parents[1]
# Headers, static data and tools that no job touches: what is smaller is sooner pushed.
_DULL = ("tensorflow/include", "pyarrow/include", "bin")


def debian() -> Layer:
    """Return the lowest layer of all images; raises ``Unavailable``."""
    return _with_digest(debian_base.make())


def outside(kind: str, packages: Mapping[str, tuple[str, ...]], *more: str) -> Layer:
    """Return a layer with what packages of this repository require, without each other.

    Args:
        kind: of the layer; of each kind, two are kept.
        packages: the extras to take, by folder below ``packages/``.
        more: requirements.

    Raises:
        Unavailable: a package cannot be had.
    """
    wanted = sorted({*_requirements(packages), *more})
    lock = (_ROOT / "requirements.lock").read_bytes()
    facts = repr(wanted).encode() + lock
    return make_layer(kind, facts, functools.partial(_fill_outside, wanted), kept=2)


def install_outside(to: Path, wanted: Iterable[str]) -> None:
    """Install requirements, with what they require, into a folder; raises ``Unavailable``."""
    _install(to, *wanted)
    for dull in _DULL:
        shutil.rmtree(to / dull, ignore_errors=True)


def own(kind: str, packages: Iterable[str]) -> Layer:
    """Return a layer with packages of this repository alone, by folder below ``packages/``.

    Raises:
        Unavailable: one cannot be built.
    """
    facts = describe_sources(packages)
    return make_layer(kind, facts, functools.partial(install_own, packages), kept=9)


def install_own(packages: Iterable[str], root: Path) -> None:
    """Install packages of this repository, alone, below the root of a layer."""
    site = root / SITE.lstrip("/")
    _install(site, "--no-deps", *(str(_ROOT / "packages" / name) for name in packages))
    shutil.rmtree(site / "bin", ignore_errors=True)


def describe_sources(packages: Iterable[str], *folders: Path) -> bytes:
    """Return the digests of all files of packages of this repository, and of more folders."""
    places = [_ROOT / "packages" / name for name in packages]
    folders = (*(place / "src" for place in places), *folders)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    kept = sorted(path for path in files if "__pycache__" not in path.parts)
    projects = (place / "pyproject.toml" for place in places)
    lines = [f"{path.relative_to(_ROOT)} {_digest(path)}" for path in (*projects, *kept)]
    return "\n".join(lines).encode()


def make_layer(kind: str, facts: bytes, fill: Callable[[Path], None], kept: int) -> Layer:
    """Return a layer from the cache, or make it now; the oldest of its kind are removed."""
    folder = dev_cache.folder() / "job-image"
    layer = folder / f"{kind}-{hashlib.sha256(facts).hexdigest()[:16]}.tar"
    with dev_cache.lock(f"job-image-{kind}"):
        if layer.exists():
            os.utime(layer)
            return _with_digest(layer)
        folder.mkdir(exist_ok=True)
        former = sorted(folder.glob(f"{kind}-*.tar"), key=lambda path: path.stat().st_mtime)
        for path in former[: max(0, len(former) - kept + 1)]:
            path.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            root, packed = Path(unfinished) / "root", Path(unfinished) / "layer.tar"
            fill(root)
            _pack(root, packed)
            packed.rename(layer)
    return _with_digest(layer)


def _requirements(packages: Mapping[str, tuple[str, ...]]) -> set[str]:
    wanted: set[str] = set()
    for name, extras in packages.items():
        project = tomllib.loads((_ROOT / "packages" / name / "pyproject.toml").read_text())
        optional = project["project"].get("optional-dependencies", {})
        wanted.update(project["project"]["dependencies"])
        for extra in extras:
            wanted.update(optional[extra])
    return {each for each in wanted if not each.startswith("edl-")}


def _fill_outside(wanted: Iterable[str], root: Path) -> None:
    install_outside(root / SITE.lstrip("/"), wanted)


def _pack(root: Path, layer: Path) -> None:
    owner = ("--owner=0", "--group=0", "--numeric-owner", "--sort=name")
    subprocess.run(("tar", "-C", root, *owner, "--mode=a+rX", "-cf", layer, "."), check=True)


def _with_digest(path: Path) -> Layer:
    return path, _digest(path)


@functools.cache
def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


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
