"""Images without a registry: directories packed as tar files that containerd imports."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from .node import PAUSE_IMAGE

BUSYBOX_IMAGE = "localhost/busybox:1"
SEARCH_PATH = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def write_pause(binaries: Path, archive: Path) -> None:
    with tempfile.TemporaryDirectory() as root:
        shutil.copy(binaries / "pause", Path(root) / "pause")
        pack(Path(root), PAUSE_IMAGE, archive, ["/pause"])


def write_busybox(archive: Path) -> None:
    """A shell and small tools: Debian's static busybox."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("bin", "etc", "tmp", "root", "proc", "sys", "dev", "var"):
            (root / name).mkdir()
        (root / "tmp").chmod(0o1777)
        (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        busybox = root / "bin" / "busybox"
        shutil.copy("/bin/busybox", busybox)
        listed = subprocess.run((busybox, "--list"), check=True, capture_output=True, text=True)
        for applet in set(listed.stdout.split()) - {"busybox"}:
            (root / "bin" / applet).symlink_to("busybox")
        pack(root, BUSYBOX_IMAGE, archive, ["/bin/sh"])


def pack(root: Path, name: str, archive: Path, command: list[str]) -> None:
    """Write the directory as an image of one layer, in the layout of ``docker save``."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as unfinished:
        layer = Path(unfinished) / "layer.tar"
        with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
            for entry in sorted(root.iterdir()):
                tar.add(entry, entry.name, filter=_owned_by_root)
        with layer.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        config = {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Cmd": command, "Env": [SEARCH_PATH], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        image = Path(unfinished) / "image.tar"
        with tarfile.open(image, "w") as tar:
            _add(tar, "config.json", json.dumps(config))
            tar.add(layer, "layer.tar", filter=_owned_by_root)
            _add(tar, "manifest.json", json.dumps(manifest))
        image.rename(archive)


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _add(tar: tarfile.TarFile, name: str, text: str) -> None:
    content = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
