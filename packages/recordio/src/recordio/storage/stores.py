"""Object stores by URI: the client of each scheme, as edl needs it."""

from __future__ import annotations

import os
from typing import Any

from recordio.errors import UnreadableFile


def is_uri(place: str) -> bool:
    """Whether a place needs fsspec; plain paths and ``file://`` do not."""
    return "://" in place and not place.startswith("file://")


def filesystem(uri: str) -> tuple[Any, str]:
    """The fsspec file system of a URI, and the path within it.

    Raises:
        UnreadableFile: the scheme is unknown, its package is not installed, or there are no
            credentials.
    """
    import fsspec

    google = uri.lower().startswith(("gs://", "gcs://"))
    options = _google_options(fsspec.config.conf) if google else {}
    try:
        system, path = fsspec.core.url_to_fs(uri, **options)
    except Exception as error:  # a store's client has errors of its own
        raise UnreadableFile(f"{uri}: {error}") from error
    # Clients keep listings for ever, but other processes have written since this one looked.
    system.invalidate_cache()
    return system, path


def _google_options(configured: dict[str, dict[str, Any]]) -> dict[str, Any]:
    # It would keep channels of gRPC, which no fork survives, and ask for the kind of each bucket,
    # which needs a permission of its own.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    if any("token" in configured.get(name, {}) for name in ("gs", "gcs")):
        return {}
    if os.environ.get("STORAGE_EMULATOR_HOST", "default") not in ("", "default"):
        return {"token": "anon"}
    # Otherwise gcsfs goes on without credentials where it finds none, and objects seem forbidden.
    return {"token": "google_default"}
