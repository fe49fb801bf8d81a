"""Files go to real servers of stores in parts at the same time, and appear whole or not at all."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from store_proxy import Fault, StoreProxy
from store_servers import GoogleServer, S3Server, StoreServer

from edl_master.adapters import object_stores
from recordio.storage import uploads
from recordio.storage.stores import filesystem

pytestmark = pytest.mark.product

BUCKET = "kept"
PART = 5 << 20  # the least that S3 takes
LARGE = 6 * PART + 12_345
WAIT_S = 100


@pytest.fixture(params=[GoogleServer, S3Server], ids=["gs", "s3"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    make: Callable[[str], StoreServer] = request.param
    server = make(BUCKET)
    yield server
    server.stop()


@pytest.fixture
def proxy(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    """The store as the clients of this process see it."""
    proxy = StoreProxy(server.url)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value.replace(server.url, proxy.url))
    fsspec.get_filesystem_class(server.scheme).clear_instance_cache()
    monkeypatch.setattr(uploads, "PART_BYTES", PART)
    yield proxy
    proxy.close()


def send(server: StoreServer, local: Path, name: str) -> None:
    system, path = filesystem(f"{server.scheme}://{BUCKET}/{name}")
    uploads.send(system, local, path)


def is_part(method: str, path: str) -> bool:
    """Whether a request brings bytes of a large file."""
    return "upload_id=" in path if "/upload/" in path else "partNumber=" in path


def large_file(place: Path) -> tuple[Path, bytes]:
    content = os.urandom(LARGE)
    place.write_bytes(content)
    return place, content


def test_parts_of_a_large_file_are_sent_at_the_same_time(
    server: StoreServer, proxy: StoreProxy, tmp_path: Path
) -> None:
    local, content = large_file(tmp_path / "large")
    together = threading.Barrier(uploads.CONCURRENT_PARTS)
    first = iter(range(uploads.CONCURRENT_PARTS))

    def fault(method: str, path: str) -> None:
        if is_part(method, path) and next(first, None) is not None:
            together.wait(WAIT_S)  # fails, and the upload with it, unless all are on their way

    proxy.fault = fault
    send(server, local, "place/large")
    assert not together.broken
    assert server.system.find(BUCKET) == [f"{BUCKET}/place/large"]
    assert server.system.cat_file(f"{BUCKET}/place/large") == content
    parts = [request for request in proxy.requests if is_part(*request)]
    assert 7 <= len(parts) <= 9, "none larger than a part"


def test_a_part_that_fails_is_sent_again_by_itself(
    server: StoreServer, proxy: StoreProxy, tmp_path: Path
) -> None:
    local, content = large_file(tmp_path / "large")
    failing = iter([503])

    def fault(method: str, path: str) -> int | None:
        return next(failing, None) if is_part(method, path) else None

    proxy.fault = fault
    send(server, local, "large")
    assert server.system.cat_file(f"{BUCKET}/large") == content
    parts = [request for request in proxy.requests if is_part(*request)]
    assert 8 <= len(parts) <= 10


def test_a_file_that_the_store_refuses_leaves_nothing(
    server: StoreServer, proxy: StoreProxy, tmp_path: Path
) -> None:
    local, _ = large_file(tmp_path / "large")
    passed = iter(range(4))

    def fault(method: str, path: str) -> int | None:
        return 403 if is_part(method, path) and next(passed, None) is None else None

    proxy.fault = fault
    with pytest.raises(OSError, match=r"(?i)forbidden|403"):
        send(server, local, "large")
    assert server.system.find(BUCKET) == []


def test_files_of_a_folder_are_sent_at_the_same_time_and_not_all_of_them(
    server: StoreServer, proxy: StoreProxy, tmp_path: Path
) -> None:
    names = [f"{folder}/{number}" for folder in ("a", "b/c") for number in range(4)]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    lock, meet = threading.Lock(), threading.Event()
    now = most = 0

    def fault(method: str, path: str) -> None:
        nonlocal now, most
        if method not in ("PUT", "POST"):
            return
        with lock:
            now += 1
            most = max(most, now)
        if now == uploads.CONCURRENT_FILES:
            meet.set()
        meet.wait(WAIT_S)
        with lock:
            now -= 1

    proxy.fault = fault
    send(server, tmp_path, "folder")
    assert most == uploads.CONCURRENT_FILES
    there = server.system.find(f"{BUCKET}/folder")
    assert there == sorted(f"{BUCKET}/folder/{name}" for name in names)
    assert server.system.cat_file(f"{BUCKET}/folder/b/c/3") == b"b/c/3"


OUTAGE_S = 20.0


def test_a_store_that_is_out_of_order_while_a_result_appears_costs_time(
    server: StoreServer, proxy: StoreProxy, tmp_path: Path
) -> None:
    names = [f"{folder}/{number}" for folder in ("a", "b/c") for number in range(3)]
    for name in (*names, "last"):
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_bytes(name.encode())
    predictions, part, model = (f"{server.scheme}://{BUCKET}/{name}" for name in "opm")
    object_stores.put(tmp_path / "model", part, "job")
    began: list[float] = []

    def out_of_order(method: str, path: str) -> Fault:
        if not began and method in ("PUT", "POST"):
            began.append(time.monotonic())
        return 500 if began and time.monotonic() - began[0] < OUTAGE_S else None

    proxy.fault = out_of_order
    with ThreadPoolExecutor() as threads:
        both = [
            threads.submit(object_stores.put, tmp_path / "model", predictions, "job"),
            threads.submit(object_stores.move, part, model, "job", "last"),
        ]
    for each in both:
        each.result()
    there = {path: server.system.cat_file(path) for path in server.system.find(BUCKET)}
    assert there == {
        f"{BUCKET}/{place}/{name}": name.encode() for place in "om" for name in (*names, "last")
    }
