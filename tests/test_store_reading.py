"""Records of real servers of stores that fail as clouds do: all of them, or one clear error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import s3fs
from store_proxy import Fault, StoreProxy
from store_servers import S3Server

import recordio
from recordio.storage.stored_file import DEPTH

RECORDS = [b"%d" % number * 100 for number in range(10_000)]
BUCKET = "data"
SIGNED = "Signature="


@pytest.fixture
def server() -> Iterator[S3Server]:
    server = S3Server(BUCKET)
    yield server
    server.stop()


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    """What the clients of this process take for the server."""
    proxy = StoreProxy(server.url)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value.replace(server.url, proxy.url))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    yield proxy
    proxy.close()


@pytest.fixture
def uri(server: S3Server, tmp_path: Path) -> str:
    path = tmp_path / "some.recordio"
    with recordio.Writer(str(path), compressor="none", chunk_bytes=100_000) as writer:
        for record in RECORDS:
            writer.write(record)
    assert path.stat().st_size > 3 << 20
    server.put(f"{BUCKET}/some.recordio", path.read_bytes())
    return f"{server.scheme}://{BUCKET}/some.recordio"


@pytest.mark.parametrize("fault", [429, 503, "reset", "short"])
def test_every_record_comes_whatever_fails_meanwhile(
    proxy: StoreProxy, uri: str, fault: Fault
) -> None:
    number = count(1)
    proxy.fault = lambda method, path: (
        fault if method == "GET" and next(number) in (2, 3, 6, 9) else None
    )
    source = recordio.open_source(uri)
    assert list(source.read(0, len(RECORDS))) == RECORDS
    assert next(number) > 9, "the faults have happened"


def test_ranges_come_past_the_event_loop_of_the_client(proxy: StoreProxy, uri: str) -> None:
    assert list(recordio.open_source(uri).read(0, len(RECORDS))) == RECORDS
    asked = [path for method, path in proxy.requests if method == "GET"]
    assert asked
    assert all(SIGNED in path for path in asked), asked


@pytest.mark.parametrize("fault", [200, 400, 403])
def test_a_store_that_refuses_signed_addresses_is_asked_by_its_client(
    proxy: StoreProxy, uri: str, fault: int
) -> None:
    proxy.fault = lambda method, path: fault if SIGNED in path else None
    assert list(recordio.open_source(uri).read(0, len(RECORDS))) == RECORDS
    refused = [path for _, path in proxy.requests if SIGNED in path]
    assert 1 <= len(refused) <= 2 * DEPTH, "nor is it tried again and again"


def test_one_range_costs_few_requests(proxy: StoreProxy, uri: str) -> None:
    index = recordio.open_source(uri).index()
    proxy.requests.clear()
    found = recordio.open_source(uri).read(5_000, 5_010, hint=index.block(5_000))
    assert list(found) == RECORDS[5_000:5_010]
    assert len(proxy.requests) <= 3, proxy.requests


def test_an_object_that_has_changed_is_an_error_that_names_it(
    server: S3Server, proxy: StoreProxy, uri: str, tmp_path: Path
) -> None:
    source = recordio.open_source(uri)
    index = source.index()
    content = bytearray((tmp_path / "some.recordio").read_bytes())
    assert content[-1] == RECORDS[-1][-1]
    server.put(uri.partition("://")[2], bytes(content[:-1] + b"0"))
    again = recordio.open_source(uri, version=source.version)
    with pytest.raises(recordio.UnreadableFile, match=rf"{uri}: it has changed"):
        list(again.read(0, 5, hint=index.block(0)))


def test_an_object_that_is_gone_is_an_error_that_names_it(
    server: S3Server, proxy: StoreProxy, uri: str
) -> None:
    source = recordio.open_source(uri)
    index = source.index()
    server.system.rm_file(uri.partition("://")[2])
    with pytest.raises(recordio.UnreadableFile, match=rf"{uri}: there is no such object"):
        list(source.read(0, 5, hint=index.block(0)))


def test_an_object_that_changes_while_it_is_read_is_an_error(
    server: S3Server, proxy: StoreProxy, uri: str
) -> None:
    reading = recordio.open_source(uri).read(0, len(RECORDS), hint=(0, 0))
    assert next(reading) == RECORDS[0]
    server.put(uri.partition("://")[2], os.urandom(4 << 20))
    with pytest.raises(recordio.UnreadableFile, match=rf"{uri}: it has changed"):
        list(reading)
