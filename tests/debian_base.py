"""Debian with Python as a tar archive: what the images of tests are made on. Needs root."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests import dev_cache

SUITE = "bookworm"
PYTHON = "3.11"
"""The version that the suite has."""
SITE = f"/usr/local/lib/python{PYTHON}/dist-packages"
MIRROR = os.environ.get("EDL_DEBIAN_MIRROR", "http://deb.debian.org/debian")
_CA = Path("/etc/ssl/certs/ca-certificates.crt")
_DEADLINE_S = 900


class Unavailable(Exception):
    """The packages of an image cannot be downloaded; the message says why."""


def make() -> Path:
    """Return the archive, made once per machine.

    Raises:
        Unavailable: debootstrap failed.
    """
    packages = "python3,python3-pip,ca-certificates"
    # Where this machine's own CA stands between it and the package index, pip must know it.
    authorities = _CA.read_bytes() if _CA.exists() else b""
    facts = f"{SUITE} {packages} {MIRROR} 1".encode() + authorities
    packed = dev_cache.folder() / f"bare-{hashlib.sha256(facts).hexdigest()[:16]}.tar"
    with dev_cache.lock("debian"):
        if not packed.exists():
            _pack(packed, packages, authorities)
    return packed


def _pack(packed: Path, packages: str, authorities: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="edl-debian-", ignore_cleanup_errors=True) as folder:
        root = Path(folder) / "root"
        _bootstrap(root, packages, Path(folder) / "debootstrap.log")
        _trim(root)
        if authorities:
            (root / "etc/ssl/certs/ca-certificates.crt").write_bytes(authorities)
            (root / "etc/pip.conf").write_text(f"[global]\ncert = {_CA}\n")
        draft = packed.with_suffix(f".{os.getpid()}")
        try:
            pack = ["tar", "-C", str(root), "--one-file-system", "-cf", str(draft), "."]
            subprocess.run(pack, check=True)
            draft.replace(packed)
        finally:
            draft.unlink(missing_ok=True)
            remove(root)


def remove(folder: Path) -> None:
    """Remove a folder in which something may be mounted."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _bootstrap(root: Path, packages: str, log: Path) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE]
    with log.open("wb") as file:
        done = subprocess.run(
            [*command, str(root), MIRROR],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=_DEADLINE_S,
            check=False,
        )
    if done.returncode:
        raise Unavailable(f"debootstrap failed: {log.read_text(errors='replace')[-500:]}")


def _trim(root: Path) -> None:
    """What is smaller is sooner packed, sent and unpacked."""
    for dull in ("var/lib/apt/lists", "var/cache/apt", "usr/lib/x86_64-linux-gnu/gconv"):
        shutil.rmtree(root / dull, ignore_errors=True)
    for dull in ("doc", "locale", "man", "i18n", "info", "zoneinfo", "lintian", "bash-completion"):
        shutil.rmtree(root / "usr/share" / dull, ignore_errors=True)
