"""Data files that change while a job reads them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import counting
import numpy as np
from conftest import Edl, HeldTraining, eventually

import recordio
import recordio.example

TOTAL, EPOCHS = 600, 2


def rewrite_in_place(file: Path) -> None:
    """Write as many records of the same size into the same file, all with another number."""
    count = recordio.open_source(str(file)).count()
    other = file.with_suffix(".new")
    with recordio.Writer(str(other)) as writer:
        for _ in range(count):
            writer.write(recordio.example.encode({"number": np.array([0])}))
    with open(other, "rb") as source, open(file, "r+b") as target:
        shutil.copyfileobj(source, target)
        target.truncate()
    other.unlink()


def test_a_file_that_is_rewritten_during_a_job_is_refused_by_name(
    edl: Edl, numbered: Callable[..., Path], held: HeldTraining, tmp_path: Path
) -> None:
    data = numbered(TOTAL)
    files, output = sorted(data.iterdir()), tmp_path / "out"
    copies = shutil.copytree(data, tmp_path / "copies")
    options = counting.train(data, TOTAL, output, "--name", "j", epochs=EPOCHS, held=held)
    running = edl.start(*options)
    eventually(lambda: counting.records_trained(edl, "j"), "records are trained")
    for file in files:
        rewrite_in_place(file)
    held.release()
    _, err = running.communicate(timeout=300)
    assert running.returncode == 3, err
    assert "has changed since the job started" in err
    assert any(str(file) in err for file in files)
    assert "resume" in err
    assert not output.exists()

    refused = edl.run("resume", "j")
    assert refused.code == 3, refused
    assert "has changed since the job read it" in refused.err

    files[0].unlink()
    refused = edl.run("resume", "j")
    assert refused.code == 3, refused
    assert f"{files[0]} is not there any more" in refused.err

    for file in files:  # with other times than before
        shutil.copyfile(copies / file.name, file)
    edl("resume", "j")
    counting.check(output, TOTAL, EPOCHS)


def test_files_that_are_only_touched_are_the_same_data(
    edl: Edl, numbered: Callable[..., Path], held: HeldTraining, tmp_path: Path
) -> None:
    data, output = numbered(TOTAL), tmp_path / "out"
    options = counting.train(data, TOTAL, output, "--name", "j", epochs=EPOCHS, held=held)
    running = edl.start(*options)
    eventually(lambda: counting.records_trained(edl, "j"), "records are trained")
    for file in data.iterdir():
        os.utime(file)
    held.release()
    _, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    counting.check(output, TOTAL, EPOCHS)
