"""The versions of a process's environment, which the status of its job shows."""

from __future__ import annotations

import platform
from importlib import metadata

_PACKAGES = ("edl-master", "edl-worker", "tensorflow", "tensorflow-cpu", "keras", "numpy")
"""By the names under which they are installed: some environments have ``tensorflow-cpu``."""

NAMES = ("python", "system", *_PACKAGES)
"""All names that ``installed_versions`` can give."""


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, of the installed packages that matter, and of the system.

    Nothing is imported: a process that cannot import its TensorFlow is asked for its version first.
    """
    found = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # a master needs no TensorFlow
    return found
