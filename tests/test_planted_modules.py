"""What lies in the current folder is not imported, whatever its name: it may be another user's."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import COMMAND, ROOT, Edl

NAMES = ("google", "grpc", "numpy", "yaml", "click", "tensorflow", "json", "argparse", "secrets")
PLANTED = """
import os
os.write(os.open({marker!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), __file__.encode() + b"\\n")
"""


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with modules that report that they were imported; none may have been."""
    folder, marker = tmp_path / "shared", tmp_path / "imported"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(PLANTED.format(marker=str(marker)))
    yield folder
    assert not marker.exists(), marker.read_text()


@pytest.mark.own_start
def test_no_process_imports_from_the_current_folder(
    edl: Edl, shared_folder: Path, tmp_path: Path
) -> None:
    """Neither check, supervisor, master, parameter server and worker, nor viewer and builder."""
    edl("zoo", "init", str(tmp_path / "zoo"), cwd=shared_folder)
    zoo = ("--model-zoo", str(tmp_path / "zoo"), "--model-def", "circle")
    edl("zoo", "check", *zoo, cwd=shared_folder)
    data = ("--data", str(tmp_path / "zoo" / "data" / "train.recordio"))
    output = ("--output", str(tmp_path / "model"), "--parameter-servers", "1", "--name", "circle")
    edl("train", *zoo, *data, *output, cwd=shared_folder)
    with subprocess.Popen(
        [COMMAND, "dashboard", "circle"], cwd=shared_folder, env=edl.env, stdout=subprocess.PIPE
    ) as viewer:
        assert viewer.stdout is not None
        assert b"http://" in viewer.stdout.readline()
        viewer.terminate()
    nowhere = ("--engine", f"unix://{tmp_path}/none.sock", "--repository", "127.0.0.1:9/zoo")
    base = ("--base-image", "127.0.0.1:9/base:1")
    done = edl.run("zoo", "build", *zoo[:2], *nowhere, *base, cwd=shared_folder)
    assert "cannot be reached" in done.err, str(done)


def test_every_command_line_that_runs_a_module_is_started_safely() -> None:
    """Check command lines of containers, too, which no test starts in a folder of modules."""
    places = [*ROOT.glob("packages/*/src/**/*.py"), *ROOT.glob("deploy/**/*.Dockerfile")]
    runs = re.compile(r'(.{0,6})"-m",\s*"(?:edl|pip)')
    found = [(path, match) for path in places for match in runs.finditer(path.read_text())]
    assert len(found) > 10
    assert [path for path, match in found if match[1][-6:] != '"-P", '] == []
