"""Records of real servers of stores that fail as clouds do: all of them, or one clear error."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import s3fs
from store_proxy import Fault, StoreProxy
from store_servers import S3Server

import recordio
from recordio.storage.range_cache import RangeCache
from recordio.storage.stored_file import DEPTH

pytestmark = pytest.mark.product

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
    """Run a proxy that the clients of this process take for the server."""
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


def test_only_the_first_range_of_a_file_asks_what_the_object_is(
    proxy: StoreProxy, uri: str
) -> None:
    index = recordio.open_source(uri).index()
    source = recordio.open_source(uri)
    for times, start in enumerate((1_000, 5_000, 9_000)):
        proxy.requests.clear()
        hint, end = index.block(start), index.end(start + 10)
        assert (
            list(source.read(start, start + 10, hint=hint, end=end)) == RECORDS[start : start + 10]
        )
        looked = [method for method, _ in proxy.requests if method != "GET"]
        assert len(looked) == (0 if times else 1), proxy.requests
    again = pickle.loads(pickle.dumps(source))
    assert list(again.read(0, 10, hint=(0, 0))) == RECORDS[:10]


def test_what_was_read_once_is_kept_on_this_machine(
    server: S3Server, proxy: StoreProxy, uri: str, tmp_path: Path
) -> None:
    cache = RangeCache(str(tmp_path / "cache"), 1 << 30)
    index = recordio.open_source(uri).index()
    hint, end = index.block(2_000), index.end(8_000)
    wanted: list[int] = []
    for _ in range(2):
        proxy.requests.clear()
        source = recordio.open_source(uri, cache=cache)
        assert list(source.read(2_000, 8_000, hint=hint, end=end)) == RECORDS[2_000:8_000]
        wanted.append(sum(method == "GET" for method, _ in proxy.requests))
    assert wanted[0] > 0
    assert wanted[1] == 0
    server.put(uri.partition("://")[2], os.urandom(4 << 20))
    with pytest.raises(recordio.RecordError):
        list(recordio.open_source(uri, cache=cache).read(2_000, 8_000, hint=hint, end=end))


def test_an_object_that_has_changed_is_an_error_that_names_it(
    server: S3Server, proxy: StoreProxy, uri: str, tmp_path: Path
) -> None:
    source = recordio.open_source(uri)
    index = source.index()
    content = bytearray((tmp_path / "some.recordio").read_bytes())
    assert content[-1] == RECORDS[-1][-1]
    server.put(uri.partition("://")[2], bytes(content[:-1] + b"0"))
    again = recordio.open_source(uri, version=source.version)
    with pytest.raises(recordio.UnreadableFile, match=rf"{uri} has changed"):
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
    with pytest.raises(recordio.UnreadableFile, match=rf"{uri}: the object has changed"):
        list(reading)


def test_a_store_that_dies_costs_time_and_no_record(
    server: S3Server, proxy: StoreProxy, uri: str
) -> None:
    reading = recordio.open_source(uri).read(0, len(RECORDS), hint=(0, 0))
    found = [next(reading)]
    server.stop()
    before = len(proxy.requests)

    def revive() -> None:
        # Every request of those on their way has failed, and has been made again.
        while len(proxy.requests) < before + 3 * DEPTH:
            time.sleep(0.01)
        server.start()

    reviver = threading.Thread(target=revive, daemon=True)
    reviver.start()
    found += reading
    reviver.join()
    assert found == RECORDS


def test_ten_thousand_objects_are_found_in_a_few_requests(
    server: S3Server, proxy: StoreProxy
) -> None:
    names = [f"many/part-{number:05}.recordio" for number in range(10_000)]
    server.put_many(BUCKET, names, b"")
    server.put_many(BUCKET, ["elsewhere/other", "many/_SUCCESS"], b"")
    found = recordio.expand(f"s3://{BUCKET}/many/*.recordio")
    assert found == [f"s3://{BUCKET}/{name}" for name in names]
    assert len(proxy.requests) <= 15, "a thousand objects in each request, and a few more"


@pytest.mark.parametrize(
    ("place", "fault", "told"),
    [
        ("nothing/x.recordio", None, "nothing matches; s3:// holds data"),
        ("nothing/*.recordio", None, "nothing matches; s3:// holds data"),
        (f"{BUCKET}/none.recordio", None, f"nothing matches; s3://{BUCKET} holds some"),
        (f"{BUCKET}/x.recordio", (403, "InvalidAccessKeyId"), "the store denies access"),
        (f"{BUCKET}/*.recordio", (403, "SignatureDoesNotMatch"), "the store denies access"),
        (f"{BUCKET}/*.recordio", (400, "ExpiredToken"), "the store denies access"),
        (f"{BUCKET}/x.recordio", 503, "the store failed"),
        (f"{BUCKET}/x.recordio", "reset", "the store cannot be reached"),
    ],
)
def test_data_that_cannot_be_found_is_one_clear_error(
    server: S3Server, proxy: StoreProxy, place: str, fault: Fault, told: str
) -> None:
    server.put(f"{BUCKET}/some.recordio", b"")
    proxy.fault = lambda method, path: fault
    with pytest.raises(recordio.RecordError) as caught:
        recordio.expand(f"s3://{place}")
    assert str(caught.value).startswith(f"s3://{place}: {told}")
    assert "\n" not in str(caught.value)


def test_absent_credentials_are_one_clear_error(
    proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(recordio.UnreadableFile, match="x: no credentials for the store were found"):
        recordio.expand(f"s3://{BUCKET}/x")


def test_what_is_no_recordio_is_one_clear_error(server: S3Server, proxy: StoreProxy) -> None:
    server.put(f"{BUCKET}/text.recordio", b"this is a text, whatever its name says")
    with pytest.raises(recordio.DamagedFile, match=r"text\.recordio.*not a RecordIO chunk"):
        recordio.open_source(f"s3://{BUCKET}/text.recordio").count()
