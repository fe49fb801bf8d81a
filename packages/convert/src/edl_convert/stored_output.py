"""The output of a conversion in a store: made on this machine, and sent when it is complete.

While it is sent, an object next to it names the folder of this machine that it comes from. That
folder is locked as long as its conversion lives, so the next conversion to the same place sees
whether the one before was killed, and removes what that has left.
"""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from edl.plugins.data import storage
from edl.plugins.errors import usage
from edl_convert.drafts import draft, is_held
from edl_proto.errors import EdlError, ErrorCode


def check(place: str) -> None:
    """Check that a store takes files here.

    Raises:
        Problem, EdlError: it does not.
    """
    try:
        storage.check_writable(place)
    except storage.StoreError as error:
        raise _unwritable(place, error) from None


def remove_abandoned(place: str, parts: Sequence[str]) -> None:
    """Remove what a conversion to a place left that was killed while it sent its files.

    Args:
        parts: all places that it may have written.

    Raises:
        Problem: the place has a name that stores misread.
        EdlError: a conversion is writing there, or the store does not answer.
    """
    if any(mark in place for mark in "*?["):
        raise usage(
            f"{place} has a *, ? or [ in its name, which stores read as a pattern",
            where="--to",
            remedy="Choose a name without them.",
        )
    try:
        if not _is_abandoned(place):
            return
        for part in parts:
            if storage.exists(part):
                storage.remove(part)
        storage.remove_file(_sign_of(place))
    except storage.StoreError as error:
        raise _unwritable(place, error) from None


def _is_abandoned(place: str) -> bool:
    """Return whether a conversion of this machine was killed while it wrote to a place.

    Raises:
        EdlError: it is writing, or another machine knows.
    """
    sign = _sign_of(place)
    try:
        signed = json.loads(storage.read(sign))
        host, folder = str(signed["host"]), Path(signed["folder"])
    except FileNotFoundError:
        return False
    except (ValueError, TypeError, KeyError):
        host, folder = "another machine", Path()
    if host == socket.gethostname() and not is_held(folder):
        return True
    raise EdlError(
        ErrorCode.OUTPUT_EXISTS,
        f"a conversion on {host} is writing there, or was killed",
        where=place,
        remedy=f"Wait for its end. If it was killed, remove {sign} and everything at that URI.",
    )


def _sign_of(place: str) -> str:
    parent, _, name = place.rpartition("/")
    return f"{parent}/.{name}.edl-convert"


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a temporary folder; remove those of killed conversions as well.

    Raises:
        OSError: there is no place for it.
    """
    with draft(Path(tempfile.gettempdir()) / "edl-convert") as here:
        here.chmod(0o700)  # temporary folders are next to those of other users
        yield here


def send(here: Path, place: str, last: str) -> None:
    """Send the content of a folder to the parent of a place, which has none of it yet.

    Args:
        last: name of the file of a folder that is sent when all others are there.

    Raises:
        EdlError: OUTPUT_UNWRITABLE; what was sent is removed, as well as that can be done.
    """
    parent = place.rpartition("/")[0]
    found = sorted(here.iterdir())
    marker, held = next(here.glob(f"*/{last}"), None), here / ".last"
    if marker is not None:
        marker.rename(held)
    sign = json.dumps({"host": socket.gethostname(), "folder": str(here)})
    try:
        storage.write(_sign_of(place), sign.encode())
        for each in found:
            storage.send(each, f"{parent}/{each.name}")
        if marker is not None:
            storage.send(held, f"{parent}/{marker.relative_to(here)}")
    except BaseException as error:
        for each in found:
            with suppress(storage.StoreError):
                storage.remove(f"{parent}/{each.name}")
        _unsign(place)
        if isinstance(error, storage.StoreError):
            raise _unwritable(place, error) from None
        raise
    _unsign(place)


def _unsign(place: str) -> None:
    with suppress(FileNotFoundError, storage.StoreError):
        storage.remove_file(_sign_of(place))


def _unwritable(place: str, error: storage.StoreError) -> EdlError:
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"the store rejected the output: {error}",
        where=place,
        remedy=error.remedy,
    )
