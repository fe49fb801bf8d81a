"""The output of a conversion in a store: made on this machine, and sent when it is complete."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edl.adapters import storage
from edl.core.problem import usage
from edl_proto.errors import EdlError, ErrorCode


def check(place: str) -> None:
    """Check that a store takes files here.

    Raises:
        Problem, EdlError: it does not.
    """
    if any(mark in place for mark in "*?["):
        raise usage(
            f"{place} has a *, ? or [ in its name, which stores read as a pattern",
            where="--to",
            remedy="Choose a name without them.",
        )
    try:
        storage.check_writable(place)
    except storage.StoreError as error:
        raise _unwritable(place, error) from None


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of this machine that is gone afterwards.

    Raises:
        OSError: there is no place for it.
    """
    with tempfile.TemporaryDirectory(prefix="edl-convert-") as here:
        yield Path(here)


def send(here: Path, place: str, last: str) -> None:
    """Send the content of a folder to the parent of a place, where nothing of it is yet.

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
    try:
        for each in found:
            storage.send(each, f"{parent}/{each.name}")
        if marker is not None:
            storage.send(held, f"{parent}/{marker.relative_to(here)}")
    except BaseException as error:
        for each in found:
            with suppress(storage.StoreError):
                storage.remove(f"{parent}/{each.name}")
        if isinstance(error, storage.StoreError):
            raise _unwritable(place, error) from None
        raise


def _unwritable(place: str, error: Exception) -> EdlError:
    return EdlError(
        ErrorCode.OUTPUT_UNWRITABLE,
        f"the store does not take the output: {error}",
        where=place,
        remedy=storage.REMEDY,
    )
