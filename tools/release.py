"""Version and distributions: ``./dev release``.

The version is that of ``pyproject.toml`` at the root; ``stamp`` writes it wherever else it stands.

    ./dev release                  build all distributions into dist/
    ./dev release stamp [VERSION]  set the version
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASED = (
    *("proto", "runtime", "recordio", "registry", "spans", "client", "convert", "sql", "mlflow"),
    *("docker", "images", "keras", "kubernetes", "watch", "builder", "master", "worker", "compat"),
    *("serve", "tune"),
)
"""Folders of the distributions; the others are for tests."""

_OWN = r"edl-[a-z]+(?:\[[\w,-]+\])?"
# Files and what stands around the version there.
_PLACES: tuple[tuple[str, str], ...] = (
    ("pyproject.toml", r'(?m)^(version = ")[^"]+(")'),
    ("packages/*/pyproject.toml", r'(?m)^(version = ")[^"]+(")'),
    ("packages/*/pyproject.toml", rf'("{_OWN}==)[^"]+(")'),
    ("packages/*/src/*/__init__.py", r'(?m)^(__version__ = ")[^"]+(")'),
    ("deploy/docker/*.Dockerfile", r"(?m)^(ARG VERSION=).+()$"),
)


def version() -> str:
    """The version of everything."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def stamp(wanted: str) -> list[Path]:
    """Write a version to every place that has one; return the files that have changed."""
    changed = []
    for pattern, around in _PLACES:
        for path in sorted(ROOT.glob(pattern)):
            before = path.read_text()
            after = re.sub(around, rf"\g<1>{wanted}\g<2>", before)
            if after != before:
                path.write_text(after)
                changed.append(path)
    return changed


def stale() -> list[Path]:
    """The files that have another version than the root."""
    wanted = version()
    return [
        path
        for pattern, around in _PLACES
        for path in sorted(ROOT.glob(pattern))
        if re.sub(around, rf"\g<1>{wanted}\g<2>", path.read_text()) != path.read_text()
    ]


def build(to: Path, kinds: tuple[str, ...] = ("wheel", "sdist")) -> list[Path]:
    """Build all distributions; return their files."""
    to.mkdir(parents=True, exist_ok=True)
    targets = [word for kind in kinds for word in ("-t", kind)]
    for name in RELEASED:
        folder = ROOT / "packages" / name
        command = (sys.executable, "-m", "hatchling", "build", *targets, "-d", str(to))
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return sorted(to.iterdir())


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", nargs="?", choices=("build", "stamp"), default="build")
    parser.add_argument("version", nargs="?", default="")
    chosen = parser.parse_args()
    if chosen.command == "stamp":
        for path in stamp(chosen.version or version()):
            say(str(path.relative_to(ROOT)))
        return 0
    if other := stale():
        files = ", ".join(str(path.relative_to(ROOT)) for path in other)
        say(f"not version {version()}: {files}\n  what to do: ./dev release stamp")
        return 1
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for path in build(dist):
        say(str(path.relative_to(ROOT)))
    say("\nTo install them: pip install --find-links dist 'edl-client[local]'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
