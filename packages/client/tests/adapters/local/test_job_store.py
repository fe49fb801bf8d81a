"""Directories of jobs are made and deleted as a whole."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edl.adapters.local.job_store import JobStore
from edl.adapters.local.processes import ProcessRuntime
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    """A store with one job."""
    store = JobStore(tmp_path / "jobs", ProcessRuntime())
    assert create(store, "here")
    return store


def create(store: JobStore, name: str) -> bool:
    return store.create(name, job_pb2.JobSpec(name=name, type=job_pb2.TRAIN), ["true"], ["true"])


def hidden_folders(store: JobStore) -> list[str]:
    return [path.name for path in store.root.glob(".*")]


@pytest.mark.parametrize(
    "act", [lambda store: create(store, "next"), lambda store: store.delete("here")]
)
def test_what_killed_commands_left_is_removed(
    store: JobStore, act: Callable[[JobStore], object]
) -> None:
    for name in (".new-abcdefgh", ".old-12345_78/gone"):
        (store.root / name).mkdir(parents=True)
        (store.root / name / "spec.json").write_text("{}")
    (store.root / ".old-mine").mkdir()
    other = os.open(store.root, os.O_RDONLY)  # a command that creates or deletes a job
    fcntl.flock(other, fcntl.LOCK_SH)
    assert create(store, "meanwhile")
    assert len(hidden_folders(store)) == 3, "what a command uses was removed"
    os.close(other)
    act(store)
    assert hidden_folders(store) == [".old-mine"]


def test_nothing_is_left_of_what_cannot_be_created_or_deleted(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not create(store, "here"), "the name is taken"
    assert hidden_folders(store) == []

    def refuse(*_: object) -> None:
        raise PermissionError(1, "no")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(EdlError) as caught:
        store.delete("here")
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE
    assert hidden_folders(store) == []
    assert store.has("here")
