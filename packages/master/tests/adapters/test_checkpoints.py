"""Checkpoints in a directory: what every place promises, and what a directory alone can."""

from __future__ import annotations

import errno
import json
import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance.checkpoint_suite import CheckpointSuite, World, checkpoint, newest

from edl_master.adapters.checkpoints import CheckpointStorage, LocalCheckpoints
from edl_proto.errors import EdlError, ErrorCode


class Directory(World):
    def place(self, keep: int = 3, job: str = "job") -> CheckpointStorage:
        place = LocalCheckpoints(Path(self.root), job, keep)
        place.prepare()
        self.places.append(place)
        return place

    def parts_in(self, place: CheckpointStorage) -> Path:
        return Path(self.root)


class TestDirectory(CheckpointSuite):
    def fresh(self, here: Path) -> World:
        return Directory(str(here / "a" / "b"))


def make_checkpoints(directory: Path, keep: int = 3, job: str = "job") -> LocalCheckpoints:
    checkpoints = LocalCheckpoints(directory, job, keep)
    checkpoints.prepare()
    return checkpoints


def test_what_a_crash_left_half_written_is_no_checkpoint_and_is_removed(tmp_path: Path) -> None:
    checkpoints = make_checkpoints(tmp_path)
    checkpoints.write(checkpoint(1))
    half = tmp_path / ".job-00000002.tmp"
    half.mkdir()
    (half / "array-0000.npy").write_bytes(b"torn")
    found, damaged = newest(checkpoints)
    assert found is not None
    assert damaged == []
    checkpoints.close()
    make_checkpoints(tmp_path)
    assert not half.exists()


def test_a_missing_manifest_is_damage(tmp_path: Path) -> None:
    checkpoints = make_checkpoints(tmp_path)
    for number in (1, 2):
        checkpoints.write(checkpoint(number))
    (tmp_path / "job-00000002" / "manifest.json").unlink()
    found, damaged = newest(checkpoints)
    assert [name for name, _ in damaged] == ["job-00000002"]
    assert found is not None
    assert found.name == "job-00000001"


def test_a_second_master_of_the_job_is_fenced_off(tmp_path: Path) -> None:
    first = make_checkpoints(tmp_path)
    make_checkpoints(tmp_path, job="another")
    with pytest.raises(EdlError) as caught:
        make_checkpoints(tmp_path)
    assert caught.value.code == ErrorCode.JOB_EXISTS
    assert str(tmp_path) in caught.value.where
    first.write(checkpoint(1))
    first.close()
    make_checkpoints(tmp_path).write(checkpoint(2))


def test_a_place_that_cannot_be_written_is_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EdlError) as caught:
        LocalCheckpoints(tmp_path / "file" / "below", "job", 3).prepare()
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE


class Unwritable:
    """An array for which there is no space."""

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        raise OSError(errno.ENOSPC, "no space left")


def test_two_masters_never_write_the_same_draft(tmp_path: Path) -> None:
    checkpoints = make_checkpoints(tmp_path)
    drafts = {checkpoints._draft("job-00000002") for _ in range(20)}
    assert len(drafts) == 20


def test_a_checkpoint_that_cannot_be_written_leaves_the_ones_before(tmp_path: Path) -> None:
    checkpoints = make_checkpoints(tmp_path)
    checkpoints.write(checkpoint(1))
    unwritable = replace(checkpoint(2), arrays={"a": Unwritable()})
    with pytest.raises(EdlError):
        checkpoints.write(unwritable)
    assert checkpoints.names() == ["job-00000001"]
    assert json.loads((tmp_path / "job-00000001" / "plane.json").read_text()) == {"version": 1}


def seal(body: object) -> str:
    """Return a forged manifest, whose checksum is right."""
    text = json.dumps(body, sort_keys=True).encode()
    return json.dumps({"crc32": zlib.crc32(text), "body": body})


def describe(path: Path) -> dict[str, int]:
    content = path.read_bytes()
    return {"bytes": len(content), "crc32": zlib.crc32(content)}


@pytest.mark.parametrize(
    "name", ["../../secret.json", "{root}/secret.json", "a/../../../secret.json"]
)
def test_a_checkpoint_of_others_names_only_its_own_files(tmp_path: Path, name: str) -> None:
    root = tmp_path / "kept"
    checkpoints = make_checkpoints(root)
    checkpoints.write(checkpoint(1))
    (tmp_path / "secret.json").write_text('{"key": "mine"}')
    place = root / "job-00000001"
    (place / "a").mkdir()
    body = json.loads((place / "manifest.json").read_bytes())["body"]
    body["files"][name.format(root=tmp_path)] = describe(tmp_path / "secret.json")
    (place / "manifest.json").write_text(seal(body))
    with pytest.raises(EdlError, match="invalid name"):
        newest(checkpoints)


@pytest.mark.parametrize("kind", ["pipe", "deep", "device", "part of itself", "pickle"])
def test_a_checkpoint_of_others_is_damaged_and_nothing_else(tmp_path: Path, kind: str) -> None:
    """A hostile manifest leads to no endless wait, runs no code, and nests to no great depth."""
    checkpoints = make_checkpoints(tmp_path)
    checkpoints.write(checkpoint(1))
    place = tmp_path / "job-00000001"
    manifest = place / "manifest.json"
    body = json.loads(manifest.read_bytes())["body"]
    mark = tmp_path / "it ran"
    if kind == "pickle":
        array = next(iter(body["arrays"].values()))
        np.save(place / array, np.array([Pickled(mark)], dtype=object), allow_pickle=True)
        body["files"][array] = describe(place / array)
        manifest.write_text(seal(body))
    elif kind == "part of itself":
        (place / "part").mkdir()
        (place / "part" / "part").symlink_to(".")
        inner = {**body, "files": {}, "arrays": {}, "parts": {"part": {}}}
        (place / "part" / "manifest.json").write_text(seal(inner))
        body["parts"] = {"part": describe(place / "part" / "manifest.json")}
        manifest.write_text(seal(body))
    else:
        manifest.unlink()
        if kind == "pipe":
            os.mkfifo(manifest)
        elif kind == "device":
            manifest.symlink_to("/dev/zero")
        else:
            manifest.write_text("[" * 200_000)
    with pytest.raises(EdlError) as caught:
        newest(checkpoints)
    assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED
    assert checkpoints.newest_at() >= 0
    assert not mark.exists()


class Pickled:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)
