"""Creates a model zoo to start from: a working model file, and records for it."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path

import recordio
import recordio.example
from edl.adapters.local.preflight_checks import check_writable
from edl_proto.errors import EdlError, ErrorCode

RECORDS = {"train": 2000, "test": 500}
_INSIDE = 0.8  # squared radius: half of the square [-1, 1]², nearly
_TEMPLATES = {
    "circle.py": "circle.py.txt",
    "README.md": "README.md.txt",
    "requirements.txt": "requirements.txt.txt",
}


def create(folder: Path, seed: int = 0) -> list[str]:
    """Write the zoo, whole or not at all.

    Returns:
        Its files, relative to ``folder``.

    Raises:
        EdlError: OUTPUT_EXISTS, OUTPUT_UNWRITABLE or DISK_FULL.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EdlError(
            ErrorCode.OUTPUT_EXISTS,
            ("the folder is not empty" if folder.is_dir() else "a file has this name")
            + ", and edl never overwrites anything",
            where=str(folder),
            remedy="Name a new or an empty folder.",
        )
    check_writable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        draft.chmod(0o755)
        _fill(draft, seed)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return sorted(
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
    )


def _fill(folder: Path, seed: int) -> None:
    templates = files("edl") / "templates"
    for name, template in _TEMPLATES.items():
        (folder / name).write_text((templates / template).read_text())
    (folder / "data").mkdir()
    points = random.Random(seed)
    for part, count in RECORDS.items():
        with recordio.Writer(str(folder / "data" / f"{part}.recordio")) as writer:
            for _ in range(count):
                x, y = points.uniform(-1, 1), points.uniform(-1, 1)
                inside = int(x * x + y * y < _INSIDE)
                writer.write(recordio.example.encode({"x": [x], "y": [y], "label": [inside]}))
