"""Write what edl's own images install, with hashes; ``./dev lock`` runs it.

The versions are those of ``requirements.lock``. Needs ``uv``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]

_OURS = sorted(f"edl-{path.parent.name}" for path in (ROOT / "packages").glob("*/pyproject.toml"))
_BASE_OF_ZOOS = ("pip", "setuptools", "wheel")
"""What the worker's image has besides, since zoos are built on it."""

_LOCAL = ("proto", "runtime", "recordio", "client", "convert", "watch")
_CLIENT = (*_LOCAL, "registry", "images", "kubernetes", "sql")
_WORKER = ("proto", "runtime", "spans", "recordio", "master", "kubernetes", "worker", "compat")
IMAGES: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "build": ((), "", ("pip", "hatchling")),
    "builder": (("proto", "runtime", "spans", "registry", "builder"), "", ()),
    "client": (_CLIENT, "", ()),
    "master": (("proto", "runtime", "spans", "recordio", "master", "kubernetes"), "", ()),
    "worker": (_WORKER, "", _BASE_OF_ZOOS),
    "worker-cpu": (_WORKER, "cpu", _BASE_OF_ZOOS),
    "worker-gpu": (_WORKER, "gpu", _BASE_OF_ZOOS),
}
"""Name of the lock to packages of this repository, their extra, and further requirements."""


def main() -> int:
    """Write all of them."""
    for name, (packages, extra, further) in IMAGES.items():
        with tempfile.NamedTemporaryFile("w", suffix=".in") as file:
            file.write("".join(f"{each}\n" for each in further))
            file.flush()
            subprocess.run(
                [
                    *("uv", "pip", "compile", "--quiet", "--generate-hashes"),
                    *("--no-annotate", "--no-header", "--python-version", "3.11"),
                    *("--constraint", "requirements.lock"),
                    *(part for ours in _OURS for part in ("--no-emit-package", ours)),
                    *(["--extra", extra] if extra else []),
                    *("--output-file", str(FOLDER / "locks" / f"{name}.lock")),
                    *(f"packages/{each}/pyproject.toml" for each in packages),
                    *([file.name] if further else []),
                ],
                cwd=ROOT,
                check=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
