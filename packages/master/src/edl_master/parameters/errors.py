"""The translation of the core's errors about payloads and names into errors for workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edl_master.core.parameters.payload import PayloadError
from edl_proto.errors import EdlError, ErrorCode


@contextmanager
def translate_payload_errors() -> Iterator[None]:
    """Translate the errors of payloads that no worker of this version sends into USAGE."""
    try:
        yield
    except PayloadError as error:
        raise EdlError(
            ErrorCode.SHAPE_MISMATCH,
            str(error),
            where="parameters",
            remedy="All workers must load the same model file and build it the same way.",
        ) from error


@contextmanager
def translate_missing_versions() -> Iterator[None]:
    """Translate a name without a frozen version into VERSION_NOT_FOUND."""
    try:
        yield
    except KeyError as error:
        raise EdlError(
            ErrorCode.VERSION_NOT_FOUND, str(error.args[0]), where="parameters"
        ) from error


def not_ready(what: str = "no worker has described its model yet") -> EdlError:
    """Return the error for calls that come too early."""
    return EdlError(ErrorCode.NOT_READY, what, where="parameters")
