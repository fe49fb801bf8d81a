"""Files of a folder as a stream of pieces, for a process that does not see the folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from edl_runtime.files import flush

_PIECE = 1 << 20
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
"""A file of the folder, or of a folder in it; a name leads nowhere else."""


def read_pieces(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names below the folder, each with the next piece of its content.

    Raises:
        OSError: a file cannot be read.
    """
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as file:
            piece = file.read(_PIECE)
            yield name, piece
            while piece := file.read(_PIECE):
                yield name, piece


def write_pieces(folder: Path, pieces: Iterable[tuple[str, bytes]]) -> None:
    """Make a folder of what ``read_pieces`` gave, safe on the disk; what is there is replaced.

    Raises:
        OSError: it cannot be written; nothing is left of it.
        ValueError: a name leads out of the folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written: set[Path] = {folder}
    try:
        for name, content in pieces:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a file")
            path = folder / name
            if path.parent not in written:
                path.parent.mkdir()
                written.add(path.parent)
            with path.open("ab") as file:
                file.write(content)
            written.add(path)
        for path in written:
            flush(path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
