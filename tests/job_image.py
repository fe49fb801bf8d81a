"""One image in which whole jobs run: client, master, worker, TensorFlow, and the model zoo.

It has three layers: Debian, packages of others, and this repository. The image is streamed to
containerd, so it never lies on a disk as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests import image_packages
from tests.image_packages import Layer

_ROOT = Path(__file__).parents[1]
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
        layers: the lowest first.
    """

    name: str
    layers: tuple[Layer, ...]

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
    own = image_packages.make_layer("own", _describe_own(), _fill_own, kept=9)
    layers = (image_packages.debian(), outside(), own)
    names = "".join(path.stem for path, _ in layers)
    return JobImage(f"localhost/edl-job:{hashlib.sha256(names.encode()).hexdigest()[:12]}", layers)


def outside() -> Layer:
    """Return the layer with the packages of others; raises ``Unavailable``."""
    return image_packages.outside("outside", _PACKAGES)


def _describe_own() -> bytes:
    return image_packages.describe_sources(_PACKAGES, _ROOT / _ZOO)


def _fill_own(root: Path) -> None:
    image_packages.install_own(_PACKAGES, root)
    commands = root / "usr" / "local" / "bin"
    commands.mkdir(parents=True)
    (commands / "edl").write_text('#!/bin/sh\nexec python3 -m edl "$@"\n')
    (commands / "edl").chmod(0o755)
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(_ROOT / _ZOO, root / _ZOO, ignore=ignored)
