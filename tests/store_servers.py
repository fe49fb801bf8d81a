"""Servers of object stores on loopback: one speaks S3, one the API of Google Cloud Storage."""

from __future__ import annotations

import functools
import logging
import os
import threading
import urllib.request
from collections.abc import Iterable
from http.server import HTTPServer
from typing import Any, Protocol

import fsspec
from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

ACCESS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}

os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # as edl sets it
for chatty in ("gcp_storage_emulator.server", "gcp_storage_emulator.storage"):
    logging.getLogger(chatty).setLevel(logging.ERROR)


class StoreServer(Protocol):
    """A server of a store; what it has stays when it stops serving for a while.

    Attributes:
        scheme: of its URIs.
        url: of its endpoint.
        environment: what a client needs to reach it.
        system: a client of it.
    """

    scheme: str
    url: str
    environment: dict[str, str]
    system: Any

    def put(self, path: str, content: bytes) -> None:
        """Make an object, quickly."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class S3Server:
    """Speaks S3.

    Args:
        bucket: the only one that there is.
    """

    scheme = "s3"

    def __init__(self, bucket: str) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", port=0)
        self._server.start()
        host, self._port = self._server.get_host_and_port()
        self.url = f"http://{host}:{self._port}"
        self.environment = {**ACCESS, "AWS_ENDPOINT_URL": self.url}
        self.system = fsspec.filesystem(
            "s3", key="test", secret="test", endpoint_url=self.url, use_listings_cache=False
        )
        # What an earlier test has left is in the memory of this process.
        urllib.request.urlopen(f"{self.url}/moto-api/reset", b"", timeout=200).close()
        self.system.mkdir(bucket)

    def put(self, path: str, content: bytes) -> None:
        self.system.pipe_file(path, content)

    def put_many(self, bucket: str, names: Iterable[str], content: bytes) -> None:
        """Make thousands of equal objects, past HTTP."""
        store = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for name in names:
            store.put_object(bucket, name, content)

    def start(self) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", port=self._port)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


class GoogleServer:
    """Speaks the JSON API of Google Cloud Storage.

    Args:
        bucket: the only one that there is.
    """

    scheme = "gs"

    def __init__(self, bucket: str) -> None:
        self._storage = Storage(use_memory_fs=True)
        create_bucket(bucket, self._storage)
        self._port = 0
        self.start()
        self.url = f"http://127.0.0.1:{self._port}"
        self.environment = {"STORAGE_EMULATOR_HOST": self.url}
        self.system = fsspec.filesystem(
            "gs", token="anon", endpoint_url=self.url, use_listings_cache=False
        )

    def put(self, path: str, content: bytes) -> None:
        # It parses what clients send as if it were mail: megabytes take minutes.
        bucket, _, name = path.partition("/")
        at = f"{self.url}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
        media = {"Content-Type": "application/octet-stream"}
        urllib.request.urlopen(urllib.request.Request(at, content, media), timeout=200).close()

    def start(self) -> None:
        answer = functools.partial(RequestHandler, self._storage)
        self._server = HTTPServer(("127.0.0.1", self._port), answer)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
