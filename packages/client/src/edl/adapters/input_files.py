"""Small texts that the user of a command names: in a file, or in a pipe such as ``<(…)``."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO

from edl.core.locations import user_path

MAX_INPUT_BYTES = 16 << 20
"""The size limit of a text that is read whole: a device may yield bytes without end."""

_WRITER_S = 10.0
"""How long a pipe may be without a writer: a shell starts both sides at about the same time."""


def open_input(path: Path) -> BinaryIO:
    """Open a file or a pipe, whose writer may take its time.

    Raises:
        OSError: it cannot be opened, or no process writes to the pipe.
        Problem: as ``user_path``.
    """
    path = user_path(path)
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return path.open("rb")
    # The system opens a pipe as soon as it has a writer. Nothing else shows whether it has one.
    found: list[BinaryIO | OSError] = []

    def wait_for_writer() -> None:
        try:
            found.append(path.open("rb"))
        except OSError as error:
            found.append(error)

    opening = threading.Thread(target=wait_for_writer, name="pipe", daemon=True)
    opening.start()
    opening.join(_WRITER_S)
    if not found:
        raise OSError(errno.EAGAIN, "no process writes to this pipe", str(path))
    (opened,) = found
    if isinstance(opened, OSError):
        raise opened
    return opened


def read_input(path: Path) -> bytes:
    """Return the content of a file or a pipe.

    Raises:
        OSError: it cannot be read, or is too long.
        Problem: as ``user_path``.
    """
    with open_input(path) as file:
        content = file.read(MAX_INPUT_BYTES + 1)
    if len(content) > MAX_INPUT_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_INPUT_BYTES >> 20} MiB", str(path))
    return content


def may_be_read_by_others(file: int) -> bool:
    """Return whether other users may read an open file, and its owner could forbid it.

    A pipe, as a shell gives for <(...), has no other readers. Containers and pods mount secrets
    read-only, readable for all of their processes.
    """
    facts = os.fstat(file)
    is_fixed = os.fstatvfs(file).f_flag & os.ST_RDONLY
    return stat.S_ISREG(facts.st_mode) and bool(facts.st_mode & 0o007) and not is_fixed
