"""Tells which files count as outside a model zoo, and describes one that its code reads.

Such a file is no part of a job: nothing copies it to other machines, and it may change while the
job runs.
"""

from __future__ import annotations

import functools
import site
import sys
from pathlib import Path, PurePath

MAX_FILES = 20
"""As many files are named."""

_CODE = (".py", ".pyc", ".pyi", ".so")
_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sys", "/usr")


def is_outside(path: str, zoo: Path) -> bool:
    """Tell whether a file is outside a zoo, and neither code nor one of the machine's own.

    Args:
        path: an absolute path.
        zoo: the zoo's folder, as an absolute path without links.
    """
    return not PurePath(path).is_relative_to(zoo) and is_data(path)


def is_code_outside(path: str, zoo: Path) -> bool:
    """Tell whether code is neither of a zoo nor of an installed package; as ``is_outside``."""
    return not PurePath(path).is_relative_to(zoo) and _is_of_user(path)


def is_data(path: str) -> bool:
    """Tell whether a file, by its absolute path, is neither code nor one of the machine's own."""
    return not path.endswith(_CODE) and _is_of_user(path)


def _is_of_user(path: str) -> bool:
    return not any(map(PurePath(path).is_relative_to, _folders_of_others()))


def describe(path: str, line: str, zoo: Path | None) -> str:
    """Return a warning that a file outside the zoo, or outside the job's copy of it, is read.

    Args:
        line: the line that reads or imports it, as ``file:number``.
        zoo: the zoo's folder, as the user knows it; None if it is not known.
    """
    verb = "imports" if path.endswith(_CODE) else "reads"
    if zoo is not None and PurePath(path).is_relative_to(zoo):
        return (
            f"{line} {verb} {path} where it is, and not the job's copy of the model zoo: other "
            "machines and containers lack it, and a worker that finds it changed is refused. "
            "Name it relative to the model file: Path(__file__).parent / ..."
        )
    return (
        f"{line} {verb} {path}, which is outside the model zoo and not copied with the job: "
        "other machines and containers lack it, and a worker that finds it changed is refused. "
        "Put it into the model zoo."
    )


@functools.cache
def _folders_of_others() -> tuple[str, ...]:
    """Return the folders of Python, its packages, the system, and caches of the user."""
    packages = [*site.getsitepackages(), site.getusersitepackages()]
    packages += [each for each in sys.path if "-packages" in each]
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix} - {"/", "/usr"}
    home = Path.home()
    hidden = [str(each) for each in _hidden_folders(home)]
    return (*_SYSTEM, *prefixes, *packages, *hidden)


def _hidden_folders(home: Path) -> list[Path]:
    try:
        return [each for each in home.iterdir() if each.name.startswith(".")]
    except OSError:
        return []
