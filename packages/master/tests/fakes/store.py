"""A store in memory that does what a test wants before it does what it is asked.

Its URIs begin with ``trouble://``. Each call names itself and its path: ``exists``, ``put``,
``piece`` (of an object that is sent; there are four), ``pipe``, ``get``, ``copy``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
from fsspec.callbacks import NoOpCallback
from fsspec.implementations.memory import MemoryFileSystem


def _calm(call: str, path: str) -> None:
    pass


class Trouble(MemoryFileSystem):
    """The store."""

    protocol = "trouble"
    store: dict[str, Any] = {}  # noqa: RUF012  (as in the class above it)
    pseudo_dirs: list[str] = [""]  # noqa: RUF012  (the same)
    before: Callable[[str, str], None] = staticmethod(_calm)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("trouble://", "memory://")))

    def exists(self, path: str, **kwargs: Any) -> bool:
        type(self).before("exists", path)
        return bool(super().exists(path, **kwargs))

    def put_file(self, lpath: str, rpath: str, callback: Any = None, **kwargs: Any) -> None:
        type(self).before("put", rpath)
        callback = callback or NoOpCallback()
        for _ in range(4):
            type(self).before("piece", rpath)
            callback.relative_update(1)
        super().put_file(lpath, rpath, callback=callback, **kwargs)

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        type(self).before("pipe", path)
        super().pipe_file(path, value, **kwargs)

    def get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:
        type(self).before("get", rpath)
        super().get_file(rpath, lpath, **kwargs)

    def copy(self, path1: str, path2: str, **kwargs: Any) -> None:
        type(self).before("copy", path1)
        super().copy(path1, path2, **kwargs)


fsspec.register_implementation("trouble", Trouble, clobber=True)


def trouble(at: str, what: Callable[[], object]) -> None:
    """Do something before every call of which ``call path`` holds ``at``."""

    def before(call: str, path: str) -> None:
        if at in f"{call} {path}":
            what()

    Trouble.before = staticmethod(before)


def calm() -> None:
    """No trouble any more."""
    Trouble.before = staticmethod(_calm)


@contextmanager
def empty_store() -> Iterator[None]:
    """The store without anything in it, and calm again afterwards."""
    Trouble.store.clear()
    calm()
    try:
        yield
    finally:
        calm()


def refuse() -> None:
    """Fail like a store that does not serve."""
    raise PermissionError("not today")
