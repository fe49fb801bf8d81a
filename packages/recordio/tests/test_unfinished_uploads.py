"""What is discarded in a store never appears there, and hides no error."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import recordio


class RefusalError(Exception):
    """An error like those of some stores' clients, which is no ``OSError``."""


class Upload(AbstractBufferedFile):
    """Appears when it is closed, as in every object store."""

    def _upload_chunk(self, final: bool = False) -> bool:
        if self.fs.refuses:
            raise RefusalError
        if final:
            self.fs.completed.append(self.path)
        return True

    def _initiate_upload(self) -> None:
        pass

    def discard(self) -> None:
        self.fs.ended.append(self.path)
        if self.fs.refuses:
            raise RefusalError


class UploadStore(AbstractFileSystem):
    """Notes what becomes of uploads."""

    protocol = "uploads"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.refuses = False
        self.completed: list[str] = []
        self.ended: list[str] = []
        self.removed: list[str] = []

    def _open(self, path: str, mode: str = "rb", **options: Any) -> io.IOBase:
        return Upload(self, path, mode, **options)

    def rm_file(self, path: str) -> None:
        self.removed.append(path)
        if self.refuses:
            raise RefusalError


@pytest.fixture
def uploads() -> Iterator[UploadStore]:
    fsspec.register_implementation("uploads", UploadStore, clobber=True)
    UploadStore.clear_instance_cache()
    yield fsspec.filesystem("uploads")
    UploadStore.clear_instance_cache()


def test_what_is_discarded_never_appears(uploads: UploadStore) -> None:
    writer = recordio.Writer("uploads://b/x.rio")
    writer.write(b"one")
    writer.discard()
    del writer
    assert uploads.completed == []
    assert len(uploads.ended) == 1
    assert uploads.removed == uploads.ended


def test_the_first_error_is_the_one_that_is_raised(uploads: UploadStore) -> None:
    def write_and_fail() -> None:
        with recordio.Writer("uploads://b/x.rio") as writer:
            writer.write(b"one")
            uploads.refuses = True
            raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        write_and_fail()
    assert len(uploads.removed) == 1
