"""Builds on disk, which survive the service: a folder per build, a service per state folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edl_builder.core.build import Build, BuildResult, Phase, SourceKind
from edl_builder.core.build_request import BuildRequest
from edl_builder.core.failure import BuilderError, Failure, Reason
from edl_builder.core.identifiers import BuildId, BuildIdentity, Caller, Key
from edl_builder.core.references import Reference
from edl_builder.core.source_policy import AllowedSource
from edl_runtime.files import replace_file
from edl_runtime.model.git_source import GitSource, GitUrl

log = logging.getLogger(__name__)

ARCHIVE = "archive"
CONTEXT = "context.tar"
LOG = "log.jsonl"
"""The files in the folder of a build."""

_READY = "context.ready"
_RECORD = "build.json"
_FINAL = {_RECORD, LOG}
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(slots=True)
class BuildRecord:
    """A build as stored. ``names`` are those of the builds that have joined it."""

    id: BuildId
    caller: Caller
    callers: tuple[Caller, ...]
    request: BuildRequest
    phase: Phase
    submitted_at: float
    finished_at: float | None = None
    identity: BuildIdentity | None = None
    attempts: int = 0
    names: tuple[BuildId, ...] = ()
    result: BuildResult | None = None
    failure: Failure | None = None


class StateInUseError(BuilderError):
    """The state folder belongs to another builder that runs."""


class BuildStore:
    """The state folder.

    Raises:
        StateInUseError: another service holds it.
        OSError: it cannot be written to, or its disk has no locks.
    """

    def __init__(self, folder: Path) -> None:
        self._builds = folder / "builds"
        self._builds.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            if not isinstance(error, BlockingIOError):
                raise
            raise StateInUseError(
                Reason.INVALID,
                f"another builder works in {folder}",
                where="--state-dir",
                remedy="Name another folder, or end the other one.",
            ) from None

    def close(self) -> None:
        """Let another service have the folder."""
        self._lock.close()

    def folder(self, build: BuildId) -> Path:
        """Return the folder of a build's files."""
        return self._builds / build

    def create(self, build: BuildId) -> Path:
        """Make a build's folder."""
        folder = self.folder(build)
        folder.mkdir(mode=0o700)
        return folder

    def save(self, record: BuildRecord) -> None:
        """Write a record atomically."""
        path = self.folder(record.id) / _RECORD
        replace_file(path, json.dumps(asdict(record)).encode(), durable=True)

    def clean(self, build: BuildId) -> None:
        """Remove everything but the record and the log, as far as the disk lets it."""
        with contextlib.suppress(OSError):
            for path in self.folder(build).iterdir():
                if path.name not in _FINAL:
                    _remove(path)

    def remove(self, build: BuildId) -> None:
        """Remove all of a build."""
        shutil.rmtree(self.folder(build), ignore_errors=True)

    def load(self) -> Iterator[BuildRecord]:
        """Load all builds of earlier services, oldest first; remove everything else."""
        found = []
        for folder in self._builds.iterdir():
            try:
                if not _ID.fullmatch(folder.name):
                    raise ValueError("no build")
                found.append(_record(json.loads((folder / _RECORD).read_text("utf-8"))))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.info("removing %s: %s", folder, error)
                _remove(folder)
        yield from sorted(found, key=lambda record: (record.submitted_at, record.id))


def record_of(build: Build, request: BuildRequest, names: Sequence[BuildId]) -> BuildRecord:
    """Return the record of a build."""
    return BuildRecord(
        build.id,
        build.caller,
        tuple(sorted(build.callers)),
        request,
        build.phase,
        build.submitted,
        build.finished,
        build.identity,
        build.attempts,
        tuple(names),
        build.result,
        build.failure,
    )


def build_of(record: BuildRecord) -> Build:
    """Restore a build that has ended from its record."""
    return Build(
        id=record.id,
        caller=record.caller,
        source=SourceKind.GIT if record.request.git else SourceKind.ARCHIVE,
        phase=record.phase,
        submitted=record.submitted_at,
        since=record.finished_at or record.submitted_at,
        callers=frozenset(record.callers),
        identity=record.identity,
        attempts=record.attempts,
        finished=record.finished_at,
        result=record.result,
        failure=record.failure,
    )


def write_ready(folder: Path, base: Reference) -> None:
    """Say that a context is complete, and on which base it stands."""
    (folder / _READY).write_text(json.dumps(asdict(base)))


def read_ready(folder: Path) -> Reference | None:
    """The base of a context that is complete; None if it is not."""
    try:
        base = Reference(**json.loads((folder / _READY).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return base if (folder / CONTEXT).exists() else None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _allowed_source(d: dict[str, Any]) -> AllowedSource:
    source = d["source"]
    url = GitUrl(**source["url"])
    return AllowedSource(GitSource(url, source["ref"], source["folder"]), d["credential"])


def _record(d: dict[str, Any]) -> BuildRecord:
    request = d["request"]
    git = request["git"]
    result, failure, identity = d["result"], d["failure"], d["identity"]
    return BuildRecord(
        BuildId(d["id"]),
        Caller(d["caller"]),
        tuple(Caller(name) for name in d["callers"]),
        BuildRequest(
            Reference(**request["repository"]),
            request["tag"],
            Reference(**request["base"]),
            tuple((name, value) for name, value in request["labels"]),
            _allowed_source(git) if git else None,
            request["archive_nbytes"],
            request["archive_sha256"],
            request.get("cache", ""),
            request.get("at_once", 0),
        ),
        Phase(d["phase"]),
        d["submitted_at"],
        d["finished_at"],
        BuildIdentity(identity["repository"], Key(identity["key"]), identity["tag"])
        if identity
        else None,
        d["attempts"],
        tuple(BuildId(name) for name in d["names"]),
        BuildResult(**result) if result else None,
        Failure(**{**failure, "reason": Reason(failure["reason"])}) if failure else None,
    )
