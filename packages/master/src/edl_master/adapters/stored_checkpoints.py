"""Checkpoints in an object store, through fsspec: whole or not there at all.

A store has no renaming of many objects. So a checkpoint is written on this machine first, which
releases the parameters at the speed of a disk, and is then sent object by object with its
manifest last: what has no manifest is no checkpoint. One that a job continues from is fetched the
same way back, and read as any other on this machine.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edl_master.adapters import object_stores
from edl_master.adapters.checkpoint_files import (
    DAMAGE,
    MANIFEST,
    Checkpoint,
    described_files,
    read_checkpoint,
    taken_at,
)
from edl_master.adapters.checkpoints import LocalCheckpoints, all_damaged_error, stale
from edl_master.adapters.storage_errors import storage_error
from edl_master.adapters.store_calls import store_error
from edl_proto.errors import EdlError

log = logging.getLogger(__name__)

_UPLOADS = 4
"""Files that are sent at the same time."""


class ObjectStoreCheckpoints:
    """The checkpoints of one job at a place in a store that it may share with other jobs.

    Args:
        uri: where they are.
        job: the job's name, part of every checkpoint's name.
        keep: how many of this job's checkpoints stay.
        here: directory of this machine, for one that is written, one that is being sent and one
            that was fetched.
    """

    def __init__(self, uri: str, job: str, keep: int, here: Path) -> None:
        self._uri = uri.rstrip("/")
        self._job = job
        self._keep = keep
        self._here = LocalCheckpoints(here, job, keep=1)
        self._directory = here
        self._sending = here / f".{job}-sending.tmp"
        self._fetched = here / f".{job}-fetched.tmp"
        self._name = re.compile(rf"{re.escape(job)}-(\d{{8}})")
        self._owner = f"{self._uri}/.{job}.owner"
        self._mark = b""
        self._last = 0

    def prepare(self, *, now: bool = True) -> None:
        """Make the place this master's, and remove what a crash left half-sent.

        A store has no locks: of two masters of one job the later one has the place, and the
        earlier one finds the number of the owner changed before its next checkpoint would count.

        Args:
            now: false puts off what needs the store until there is something to send. A master
                that is started again must not wait for a store.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL; JOB_EXISTS when another master has the
                directory on this machine; USAGE for a name that stores misread.
        """
        object_stores.check_literal(self._uri, "--checkpoint-dir")
        self._here.prepare()
        self._here.clear()
        if now:
            self._take()

    def _take(self) -> None:
        number = int((object_stores.read(self._owner).split() or [b"0"])[0]) + 1
        mark = f"{number} {secrets.token_hex(8)}\n".encode()
        object_stores.write(self._owner, mark)
        self._mark = mark
        self._clear_up()

    def close(self) -> None:
        """Let another master of the job write on this machine."""
        self._here.close()

    def names(self) -> list[str]:
        """Return the names of this job's checkpoints, oldest first.

        Raises:
            EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
        """
        return _whole(self._objects())

    def expect(self, label: str) -> None:
        """Prepare for parts, which are written on this machine as in ``LocalCheckpoints``."""
        self._here.expect(label)

    def parts(self, label: str, count: int) -> list[Path]:
        """Return the directories for parts, on this machine as in ``LocalCheckpoints``."""
        return self._here.parts(label, count)

    def write(self, checkpoint: Checkpoint, parts: Sequence[Path] = ()) -> str:
        """Keep a checkpoint on this machine, and forget one that waits for ``publish``.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL.
        """
        name = self._here.write(checkpoint, parts)
        # No longer needed: the job was restored from it before it could take this checkpoint.
        shutil.rmtree(self._fetched, ignore_errors=True)
        return name

    def publish(self, name: str) -> bool:
        """Send what was written under this name, and drop the oldest ones beyond ``keep``.

        Returns:
            False if it has been overtaken by a newer one.

        Raises:
            EdlError: OUTPUT_UNWRITABLE; STALE_INCARNATION when another master has taken over.
                The earlier checkpoints are as they were.
        """
        shutil.rmtree(self._sending, ignore_errors=True)
        try:
            (self._directory / name).rename(self._sending)
        except FileNotFoundError:
            return False
        try:
            if not self._mark:
                self._take()
            self._send()
        finally:
            shutil.rmtree(self._sending, ignore_errors=True)
        try:
            self._clear_up()
        except EdlError as error:
            log.warning("older checkpoints cannot be removed: %s", error)
        return True

    def _send(self) -> None:
        numbers = [int(name.rpartition("-")[2]) for name in self._objects()]
        # Never one that was begun before: a call that was given up may still end some day.
        self._last = max(self._last, *numbers, 0) + 1
        uri = f"{self._uri}/{self._job}-{self._last:08d}"
        files = {
            str(path.relative_to(self._sending)): path.stat().st_size
            for path in sorted(self._sending.rglob("*"))
            if path.is_file()
        }
        last = files.pop(MANIFEST)
        self._upload(files, uri)
        if (there := object_stores.list_objects(uri)) != files:
            odd = sorted(file for file in files if there.get(file) != files[file])
            error = ValueError(f"these files differ from what was sent: {', '.join(odd)}")
            raise store_error(uri, error)
        self._check_owner()
        object_stores.upload(self._sending / MANIFEST, f"{uri}/{MANIFEST}")
        log.info("checkpoint %s: %d bytes sent", uri, last + sum(files.values()))

    def _upload(self, files: Iterable[str], uri: str) -> None:
        threads = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload")
        try:
            sent = [
                threads.submit(object_stores.upload, self._sending / file, f"{uri}/{file}")
                for file in files
            ]
            for each in sent:
                each.result()
        finally:
            threads.shutdown(cancel_futures=True)

    def _check_owner(self) -> None:
        if object_stores.read(self._owner) != self._mark:
            raise stale(self._job, self._owner)

    def _objects(self) -> dict[str, dict[str, int]]:
        """Return the sizes in bytes of the objects of this job's checkpoints, by name and path."""
        found: dict[str, dict[str, int]] = {}
        for path, nbytes in object_stores.list_objects(self._uri).items():
            name, _, file = path.partition("/")
            if file and self._name.fullmatch(name):
                found.setdefault(name, {})[file] = nbytes
        return found

    def _clear_up(self) -> None:
        """Remove what is too many, and what was never whole."""
        objects = self._objects()
        kept = _whole(objects)[-self._keep :]
        for name in sorted(objects.keys() - set(kept)):
            # The manifest first: a half-removed one must not be mistaken for a damaged one.
            object_stores.remove(f"{self._uri}/{name}/{MANIFEST}")
            object_stores.remove(f"{self._uri}/{name}")

    def newest(self, on_damaged: Callable[[str, str], None]) -> Checkpoint | None:
        """Return the newest whole checkpoint, after fetching it.

        Raises:
            EdlError: CHECKPOINT_DAMAGED when there are some, and all are damaged;
                OUTPUT_UNWRITABLE when the store does not serve, or DISK_FULL: the newest
                one is unknown then, and no older one is taken.
        """
        objects = self._objects()
        names = _whole(objects)
        problem = ""
        for name in reversed(names):
            try:
                return self._fetch(name, objects[name])
            except DAMAGE as error:
                problem = str(error) or repr(error)
                on_damaged(name, problem)
        if not names:
            return None
        raise all_damaged_error(len(names), self._job, self._uri, problem)

    def newest_at(self) -> float:
        """Return when the newest checkpoint was taken, in seconds since 1970; 0 if there is none.

        Raises:
            EdlError: OUTPUT_UNWRITABLE; the store cannot be asked.
        """
        for name in reversed(self.names()):
            with contextlib.suppress(*DAMAGE):
                return taken_at(object_stores.read(f"{self._uri}/{name}/{MANIFEST}"))
        return 0.0

    def _fetch(self, name: str, there: Mapping[str, int]) -> Checkpoint:
        shutil.rmtree(self._fetched, ignore_errors=True)
        local = self._fetched / name
        self._fetch_files(f"{self._uri}/{name}", local, there, "")
        return read_checkpoint(local, check=True)

    def _fetch_files(self, uri: str, local: Path, there: Mapping[str, int], within: str) -> None:
        with _on_disk(local):
            (local / within).mkdir(parents=True)
        self._fetch_file(uri, local, within + MANIFEST)
        files, parts = described_files(local / within / MANIFEST)
        for file, nbytes in files.items():
            # Found out before anything large is moved.
            if (found := there.get(within + file)) != nbytes:
                now = "is missing" if found is None else f"has {found} bytes"
                raise ValueError(f"{within}{file} {now}, and had {nbytes}")
        for file in files:
            self._fetch_file(uri, local, within + file)
        for part in parts:
            self._fetch_files(uri, local, there, f"{within}{part}/")

    def _fetch_file(self, uri: str, local: Path, file: str) -> None:
        if not object_stores.download(f"{uri}/{file}", local / file):
            raise ValueError(f"{file} is missing")


def _whole(objects: Mapping[str, Mapping[str, int]]) -> list[str]:
    return sorted(name for name, files in objects.items() if MANIFEST in files)


@contextlib.contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error
