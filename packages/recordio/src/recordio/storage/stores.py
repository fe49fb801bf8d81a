"""Object stores by URI: the client of each scheme, as edl needs it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recordio.errors import UnreadableFile
from recordio.storage import foreign_answers
from recordio.storage.direct_requests import DirectRequests
from recordio.storage.store_errors import reason_of

_SILENT = logging.NullHandler()
_MAX_LOG_CHARACTERS = 1_000
"""The length of a client's log line, which could otherwise hold all of a store's answer."""


def is_uri(location: str) -> bool:
    """Tell whether a location is in a store and needs fsspec: no plain path and no ``file://``."""
    return "://" in location and not location.startswith("file://")


def filesystem(uri: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URI, and the path within it.

    Raises:
        UnreadableFile: the scheme is unknown, its package is not installed, or there are no
            credentials.
    """
    import fsspec

    for client in ("gcsfs", "s3fs"):
        # Its log lines about an error would only repeat our message.
        logging.getLogger(client).addHandler(_SILENT)
        logging.getLogger(client).addFilter(_shorten)
    try:
        options = _options(uri.lower(), fsspec.config.conf)
        system, path = fsspec.core.url_to_fs(uri, **options)
        if type(system).__name__ == "ExtendedGcsFileSystem":
            # gcsfs was imported before ``_google_options`` could choose the other client.
            from gcsfs.core import GCSFileSystem  # type: ignore[import-untyped]  # no types

            system = GCSFileSystem(*system.storage_args, **system.storage_options)
    except Exception as error:  # a store's client has error types of its own
        raise UnreadableFile(f"{uri}: {reason_of(error)}") from error
    # Clients cache listings without limit, but other processes may have written meanwhile.
    system.invalidate_cache()
    return system, path


def _shorten(record: logging.LogRecord) -> bool:
    """Shorten a line of a client's log, for programs with log handlers of their own."""
    text = record.getMessage()
    if len(text) > _MAX_LOG_CHARACTERS:
        record.msg, record.args, record.exc_info = f"{text[:_MAX_LOG_CHARACTERS]}…", (), None
    return True


def _options(uri: str, configured: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments for the client of a scheme."""
    if uri.startswith(("gs://", "gcs://")):
        own = {**configured.get("gcs", {}), **configured.get("gs", {})}
        return {**foreign_answers.google_options(own), **_google_options(own)}
    if uri.startswith(("s3://", "s3a://")):
        try:
            from recordio.storage.s3_session import s3_options
        except ModuleNotFoundError:
            return {}
        return s3_options(configured.get("s3", {}))
    return {}


def _google_options(configured: dict[str, Any]) -> dict[str, Any]:
    # With it, gcsfs keeps gRPC channels, which do not survive a fork, and requests the kind of each
    # bucket, which needs another permission.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    if "token" in configured:
        return {}
    if os.environ.get("STORAGE_EMULATOR_HOST", "default") not in ("", "default"):
        return {"token": "anon"}
    # Otherwise gcsfs continues without credentials where it finds none, and objects seem forbidden.
    return {"token": "google_default"}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was when it was opened.

    Attributes:
        uri: the URI of the object.
        size: its size in bytes.
        version: its ETag or generation, which changes with its content; empty if there is none.
        fetch: returns the bytes between two offsets.
        fixed: whether ``fetch`` fails if the object has changed. Otherwise it may return bytes of
            another version: not every store can tell.
    """

    uri: str
    size: int
    version: str
    fetch: Callable[[int, int], bytes]
    fixed: bool = False


def open_object(uri: str) -> StoredObject:
    """Open an object; its content is not requested yet.

    Raises:
        UnreadableFile: it is a directory.
        Exception: any error of the store's client.
    """
    system, path = filesystem(uri)
    if uri.startswith(("s3://", "s3a://")):
        return _open_s3(uri, system, path)
    info = system.info(path)
    _check_is_object(uri, info)
    generation = info.get("generation")
    version = str(generation or info.get("ETag") or info.get("etag") or "")
    pinned = {"generation": generation} if generation else {}

    def ask(start: int, stop: int) -> Any:
        return system.cat_file(path, start=start, end=stop, **pinned)

    fetch: Callable[[int, int], bytes] = ask
    if generation and not getattr(system, "requester_pays", True):

        def address() -> tuple[str, dict[str, str]]:
            headers: dict[str, str] = {}
            system.credentials.apply(headers)
            return str(system.url(path, generation=generation)), headers

        fetch = _prefer_direct(DirectRequests(address), ask)
    return StoredObject(uri, int(info["size"]), version, fetch, bool(generation))


def _open_s3(uri: str, system: Any, path: str) -> StoredObject:
    # Only the files of this client send the ETag with every request.
    file = system.open(path, "rb", cache_type="none")
    info = file.details
    _check_is_object(uri, info)
    etag, fetch = str(info["ETag"]), file.cache.fetcher
    given = {**system.req_kw, **system.s3_additional_kwargs, **file.read_kw}
    if {name for name, value in given.items() if value} <= {"IfMatch"}:
        # Signed URLs carry neither the user's own encryption keys nor the consent to pay for the
        # request, so there must be none.

        def address() -> tuple[str, dict[str, str]]:
            return str(system.url(path, expires=3600)), {"If-Match": etag}

        fetch = _prefer_direct(DirectRequests(address, etag), fetch)
    return StoredObject(uri, int(info["size"]), etag, fetch, bool(etag))


def _check_is_object(uri: str, info: dict[str, Any]) -> None:
    if info["type"] == "directory":
        raise UnreadableFile(f"{uri} is a directory")


def _prefer_direct(
    direct: DirectRequests, fetch: Callable[[int, int], bytes]
) -> Callable[[int, int], bytes]:
    """Return a function that fetches directly, and by the store's client where that fails."""

    def fetch_either(start: int, stop: int) -> bytes:
        content = direct.fetch(start, stop)
        return fetch(start, stop) if content is None else content

    return fetch_either
