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
_LOGGED = 1_000
"""Limit on the characters of a client's log line, which may hold all of a store's answer."""


def is_uri(place: str) -> bool:
    """Tell whether a place needs fsspec; plain paths and ``file://`` do not."""
    return "://" in place and not place.startswith("file://")


def filesystem(uri: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URI, and the path within it.

    Raises:
        UnreadableFile: the scheme is unknown, its package is not installed, or there are no
            credentials.
    """
    import fsspec

    for client in ("gcsfs", "s3fs"):
        # What it logs of an error would stand beside our message.
        logging.getLogger(client).addHandler(_SILENT)
        logging.getLogger(client).addFilter(_shorten)
    try:
        options = _options(uri.lower(), fsspec.config.conf)
        system, path = fsspec.core.url_to_fs(uri, **options)
        if type(system).__name__ == "ExtendedGcsFileSystem":
            # Who imported gcsfs before us has chosen the client that ``_google_options`` avoids.
            from gcsfs.core import GCSFileSystem  # type: ignore[import-untyped]  # no types

            system = GCSFileSystem(*system.storage_args, **system.storage_options)
    except Exception as error:  # a store's client has errors of its own
        raise UnreadableFile(f"{uri}: {reason_of(error)}") from error
    # Clients keep listings for ever, but other processes have written since this one looked.
    system.invalidate_cache()
    return system, path


def _shorten(record: logging.LogRecord) -> bool:
    """Cut a line of a client's log, for programs that log to handlers of their own."""
    text = record.getMessage()
    if len(text) > _LOGGED:
        record.msg, record.args, record.exc_info = f"{text[:_LOGGED]}…", (), None
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
    # It would keep channels of gRPC, which no fork survives, and ask for the kind of each bucket,
    # which needs a permission of its own.
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
        size: in bytes.
        version: its ETag or generation, which changes with its content; empty if there is none.
        fetch: returns the bytes from an offset to another one; an error if the object has changed,
            where the store's client can say so.
        fixed: whether the client can, and ``fetch`` never returns bytes of another version.
    """

    uri: str
    size: int
    version: str
    fetch: Callable[[int, int], bytes]
    fixed: bool = False


def open_object(uri: str) -> StoredObject:
    """Look at an object.

    Raises:
        UnreadableFile: it is none.
        Exception: whatever the store's client raises.
    """
    system, path = filesystem(uri)
    if uri.startswith(("s3://", "s3a://")):
        return _open_s3(uri, system, path)
    info = _checked(uri, system.info(path))
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

        fetch = _directly(DirectRequests(address), ask)
    return StoredObject(uri, int(info["size"]), version, fetch, bool(generation))


def _open_s3(uri: str, system: Any, path: str) -> StoredObject:
    # Of this client, only files send the ETag with every request.
    file = system.open(path, "rb", cache_type="none")
    info = _checked(uri, file.details)
    etag, fetch = str(info["ETag"]), file.cache.fetcher
    given = {**system.req_kw, **system.s3_additional_kwargs, **file.read_kw}
    if {name for name, value in given.items() if value} <= {"IfMatch"}:
        # Without keys of the user's own, and not at the user's cost: signing an address does.

        def address() -> tuple[str, dict[str, str]]:
            return str(system.url(path, expires=3600)), {"If-Match": etag}

        fetch = _directly(DirectRequests(address, etag), fetch)
    return StoredObject(uri, int(info["size"]), etag, fetch, bool(etag))


def _checked(uri: str, info: dict[str, Any]) -> dict[str, Any]:
    if info["type"] == "directory":
        raise UnreadableFile(f"{uri} is a directory")
    return info


def _directly(
    direct: DirectRequests, fetch: Callable[[int, int], bytes]
) -> Callable[[int, int], bytes]:
    def either(start: int, stop: int) -> bytes:
        content = direct.fetch(start, stop)
        return fetch(start, stop) if content is None else content

    return either
