"""What a run of the tests leaves if it is killed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .docker_environment import remove_left


def test_the_next_run_removes_the_folder_of_a_killed_one_and_no_other(tmp_path: Path) -> None:
    with subprocess.Popen(("true",)) as ended:
        pass
    for pid in (ended.pid, os.getpid()):
        (tmp_path / f"edl-docker-{pid}-x" / "data").mkdir(parents=True)
    (tmp_path / "edl-docker-kept").mkdir()
    remove_left(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f"edl-docker-{os.getpid()}-x", "edl-docker-kept"}
