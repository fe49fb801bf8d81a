"""One image in which whole jobs run: client, master, worker, TensorFlow, and the model zoo.

It has three layers: Debian, packages of others, and this repository. Each is kept as a file that is
named by the hash of what determines it. The image is streamed to containerd, so it never lies on a
disk as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests import debian_base, dev_cache, image_packages

_ROOT = Path(__file__).parents[3]
_PACKAGES: dict[str, tuple[str, ...]] = {
    "proto": (),
    "runtime": (),
    "recordio": (),
    "spans": (),
    "registry": (),
    "client": (),
    "images": (),
    "kubernetes": (),
    "master": (),
    "worker": ("cpu",),
    "compat": (),
}
_ZOO = "model_zoo"
"""Where the builder's images have it, too."""
CONFIG = {
    "User": "10001:10001",
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"],
    "WorkingDir": f"/{_ZOO}",
    "Cmd": ["python3", "-P", "-m", "edl_worker", "--help"],
}


@dataclass(frozen=True)
class JobImage:
    """An image that can be written any number of times.

    Attributes:
        name: with a tag that follows from the content.
        layers: tar files and their SHA-256, the lowest first.
    """

    name: str
    layers: tuple[tuple[Path, str], ...]

    def write(self, out: IO[bytes]) -> None:
        """Write the image in the layout of ``docker save``."""
        config = {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": CONFIG,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{d}" for _, d in self.layers]},
        }
        names = [f"{digest}.tar" for _, digest in self.layers]
        manifest = [{"Config": "config.json", "RepoTags": [self.name], "Layers": names}]
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            for name, value in (("config.json", config), ("manifest.json", manifest)):
                text = json.dumps(value).encode()
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text))
            for (path, _), name in zip(self.layers, names, strict=True):
                tar.add(path, name)


def make() -> JobImage:
    """The image of this working tree.

    Raises:
        Unavailable: Debian or a package cannot be had.
    """
    base = debian_base.make()
    wanted = image_packages.outside(_PACKAGES)
    lock = (_ROOT / "requirements.lock").read_bytes()
    outside = _layer("outside", repr(wanted).encode() + lock, _fill_outside, kept=2)
    own = _layer("own", _sources(), _fill_own, kept=9)
    layers = tuple((path, _digest(path)) for path in (base, outside, own))
    names = "".join(path.stem for path, _ in layers)
    return JobImage(f"localhost/edl-job:{hashlib.sha256(names.encode()).hexdigest()[:12]}", layers)


def _layer(kind: str, facts: bytes, fill: Callable[[Path], None], kept: int) -> Path:
    """A layer from the cache, or made now; the oldest of its kind are removed."""
    folder = dev_cache.folder() / "job-image"
    layer = folder / f"{kind}-{hashlib.sha256(facts).hexdigest()[:16]}.tar"
    with dev_cache.lock(f"job-image-{kind}"):
        if layer.exists():
            os.utime(layer)
            return layer
        folder.mkdir(exist_ok=True)
        former = sorted(folder.glob(f"{kind}-*.tar"), key=lambda path: path.stat().st_mtime)
        for path in former[: max(0, len(former) - kept + 1)]:
            path.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            root, packed = Path(unfinished) / "root", Path(unfinished) / "layer.tar"
            fill(root)
            _pack(root, packed)
            packed.rename(layer)
    return layer


def _fill_outside(root: Path) -> None:
    wanted = image_packages.outside(_PACKAGES)
    image_packages.install_outside(root / debian_base.SITE.lstrip("/"), wanted)


def _fill_own(root: Path) -> None:
    site = root / debian_base.SITE.lstrip("/")
    image_packages.install_own(site, _PACKAGES)
    shutil.rmtree(site / "bin", ignore_errors=True)
    commands = root / "usr" / "local" / "bin"
    commands.mkdir(parents=True)
    (commands / "edl").write_text('#!/bin/sh\nexec python3 -m edl "$@"\n')
    (commands / "edl").chmod(0o755)
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(_ROOT / _ZOO, root / _ZOO, ignore=ignored)


def _sources() -> bytes:
    """Digests of all files of this repository that the image has."""
    folders = [_ROOT / "packages" / name / "src" for name in _PACKAGES] + [_ROOT / _ZOO]
    projects = [_ROOT / "packages" / name / "pyproject.toml" for name in _PACKAGES]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    kept = sorted(path for path in files if "__pycache__" not in path.parts)
    lines = [f"{path.relative_to(_ROOT)} {_digest(path)}" for path in (*projects, *kept)]
    return "\n".join(lines).encode()


def _pack(root: Path, layer: Path) -> None:
    owner = ("--owner=0", "--group=0", "--numeric-owner", "--sort=name")
    subprocess.run(("tar", "-C", root, *owner, "--mode=a+rX", "-cf", layer, "."), check=True)


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
