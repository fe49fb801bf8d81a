"""Jupyter without its server: kernels, and notebooks as HTML; installed beside edl for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import dev_cache

_PACKAGES = ("ipykernel==7.4.0", "nbclient==0.11.0", "nbconvert==7.17.2")
_UV = Path(sys.executable).parent / "uv"


def install() -> Path:
    """Install Jupyter once per machine, and return the folder of its modules.

    A kernel is this Python with the folder in its path, so that cells import edl.
    """
    place = dev_cache.folder() / "-".join(("jupyter", sys.implementation.cache_tag, *_PACKAGES))
    complete = place / "complete"
    with dev_cache.lock("jupyter"):
        if not complete.exists():
            environment = {
                "UV_CACHE_DIR": str(dev_cache.folder() / "packages"),
                "UV_SYSTEM_CERTS": "1",
                **os.environ,
            }
            command = (str(_UV), "--quiet", "pip", "install", "--python", sys.executable)
            options = ("--target", str(place), *_PACKAGES)
            subprocess.run([*command, *options], check=True, env=environment)
            complete.touch()
    return place
