"""Listings of a model's files: their hash, and what differs."""

import hashlib
import subprocess
from pathlib import Path

from edl.core.model_code import describe_changes, digest


def test_the_hash_is_that_of_what_sha256sum_prints(tmp_path: Path) -> None:
    contents = {"b.py": b"1", "a/__init__.py": b"", "a.py": b"2"}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    files = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    printed = subprocess.run(
        ["sha256sum", *sorted(files)], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    assert digest(files) == hashlib.sha256(printed).hexdigest()


def test_changes_are_named_by_what_became_of_the_files() -> None:
    before = {"a.py": "1", "b.py": "1", "c.py": "1", "d.py": "1"}
    after = {"a.py": "1", "b.py": "2", "c.py": "2", "e.py": "1"}
    assert describe_changes(before, after) == "changed b.py, c.py; added e.py; removed d.py"
    assert describe_changes(before, dict(reversed(before.items()))) == ""
