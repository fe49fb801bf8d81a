"""The description of a table's records that lies next to them, for models that ask for it."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import recordio
from edl.adapters import model_zoo, storage
from edl.core.data_layout import SCHEMA_FILE, SCHEMA_VERSION, SPLIT_PARTS
from edl.core.locations import scheme
from edl.core.model_file import takes_parameter
from edl.core.platforms import KUBERNETES
from edl.core.problem import usage
from edl.core.submission import Submission
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model import model_params

_PARAMETER = "schema"


def describe(job: Submission, zoo: Path) -> tuple[Submission, str | None]:
    """Give a model that takes the parameter ``schema`` the description of its data.

    Args:
        zoo: the folder of the job's model files.

    Returns:
        The job, and the file with the description; None if the model takes none, or got one from
        the user, or if there is none.

    Raises:
        Problem: there are several descriptions.
        EdlError: DATA_UNREADABLE.
    """
    params = model_params.parse_params(job.params)
    if _PARAMETER in params:
        return job, None
    # The paths of a job on Kubernetes are those of its pods.
    in_pods = job.platform == KUBERNETES
    source, name = model_zoo.source_of(zoo, job.model_def)
    try:
        if not takes_parameter(source, name, _PARAMETER):
            return job, None
    except (SyntaxError, ValueError):
        return job, None  # the check of the model file says it better
    place = _schema_path(pattern for pattern in job.data if scheme(pattern) or not in_pods)
    if place is None:
        return job, None
    params[_PARAMETER] = _read(place)
    return replace(job, params=model_params.format_params(params)), place


def _schema_path(patterns: Iterable[str]) -> str | None:
    there = _Listings()
    places = {place for pattern in patterns for place in _places(pattern, there)}
    if len(places) > 1:
        known = sorted(place for place in places if place)
        raise usage(
            f"no {SCHEMA_FILE} describes all of --data",
            where=" and ".join(known[:2]),
            remedy="Convert all data at once, or ignore the descriptions:"
            f' --params "{_PARAMETER}=None"',
        )
    return next(iter(places), None)


def _places(pattern: str, there: _Listings) -> set[str | None]:
    """Return the descriptions of the files that a pattern names, and None if some have none.

    Nothing if something is wrong, which the check of the data says.
    """
    try:
        files = recordio.expand(pattern)
    except recordio.RecordError:
        return set()
    if not scheme(pattern):
        return {_place(file, os.path.isfile) for file in files}
    if len(files) == 1:
        return {_place(files[0], _is_stored)}
    # One listing covers thousands of files.
    return {_place(file, there.has) for file in files}


def _place(file: str, exists: Callable[[str], bool]) -> str | None:
    """Return the description of a file, where a conversion writes it."""
    folder = posixpath.dirname(file)
    found = [
        f"{posixpath.splitext(file)[0]}.{SCHEMA_FILE}",
        posixpath.join(folder, SCHEMA_FILE),
    ]
    if posixpath.basename(folder) in SPLIT_PARTS:
        found.append(posixpath.join(posixpath.dirname(folder), SCHEMA_FILE))
    return next(filter(exists, found), None)


class _Listings:
    """The content of folders of a store, each of which is listed once."""

    def __init__(self) -> None:
        self._found: dict[str, frozenset[str]] = {}

    def has(self, place: str) -> bool:
        folder, name = posixpath.split(place)
        if folder not in self._found:
            self._found[folder] = frozenset()
            with _reading(folder):
                self._found[folder] = frozenset(storage.names(folder))
        return name in self._found[folder]


def _is_stored(place: str) -> bool:
    with _reading(place):
        return storage.exists(place)
    return False


@contextmanager
def _reading(place: str) -> Iterator[None]:
    """Translate the errors of a store into words for the user.

    A user who may read some objects may be forbidden to look for others: that is no error.
    """
    try:
        yield
    except storage.StoreError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise _unreadable(place, str(error)) from None


def _read(place: str) -> object:
    try:
        found = json.loads(storage.read(place).decode("utf-8"))
        # What is no parameter of a model (NaN, very deep) was not written by a conversion.
        model_params.parse_params(model_params.format_params({_PARAMETER: found}))
        version = found["version"] if isinstance(found, dict) else None
        if version == SCHEMA_VERSION:
            return found
        reason = f"its version is {version!r:.40}, but this edl reads version {SCHEMA_VERSION}"
    except (OSError, ValueError, KeyError, RecursionError, storage.StoreError) as error:
        reason = f"it is not a readable description: {error}"
    raise _unreadable(place, reason)


def _unreadable(place: str, reason: str) -> EdlError:
    return EdlError(
        ErrorCode.DATA_UNREADABLE,
        f"the description of the data cannot be read; {reason}",
        where=place,
        remedy=f'Convert the data again, or ignore the description: --params "{_PARAMETER}=None"',
    )
