"""Checkpoints in stores: what every place promises, and what becomes of one that does not serve."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from conformance.checkpoint_suite import (
    CheckpointSuite,
    World,
    checkpoint,
    keep,
    newest,
    unused_uri,
    version,
)
from fakes.store import calm, empty_store, refuse, trouble

from edl_master.adapters import object_stores, store_calls
from edl_master.adapters.checkpoints import CheckpointStorage
from edl_master.adapters.stored_checkpoints import ObjectStoreCheckpoints
from edl_proto.errors import EdlError, ErrorCode
from recordio.storage.stores import filesystem

LONG_S = 200.0


class Store(World):
    """Places in a store; ``here`` is the machine of their masters."""

    def __init__(self, root: str, here: Path) -> None:
        super().__init__(root)
        self.here = here

    def place(self, keep: int = 3, job: str = "job", *, now: bool = True) -> ObjectStoreCheckpoints:
        place = ObjectStoreCheckpoints(self.root, job, keep, self.here / job)
        place.prepare(now=now)
        self.places.append(place)
        return place

    def parts_in(self, place: CheckpointStorage) -> Path:
        return self.here / "job"


class TestMemory(CheckpointSuite):
    def fresh(self, here: Path) -> World:
        return Store(unused_uri("memory"), here)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Store]:
    world = Store(unused_uri("trouble"), tmp_path)
    yield world
    world.close()


@pytest.fixture(autouse=True)
def no_trouble() -> Iterator[None]:
    with empty_store():
        yield


@pytest.mark.parametrize("at", ["array-0000", "ledger", "array-0002", "manifest"])
def test_wherever_a_store_fails_the_one_before_stays_and_the_next_one_counts(
    world: Store, at: str
) -> None:
    place = world.place()
    keep(place, checkpoint(1))
    trouble(f"put {world.path}/job-00000002/{at}", refuse)
    with pytest.raises(EdlError) as caught:
        keep(place, checkpoint(2))
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE
    assert "not today" in caught.value.what
    assert caught.value.where.startswith(world.root)
    calm()
    assert version(newest(place)[0]) == 1
    keep(place, checkpoint(3))
    assert version(newest(place)[0]) == 3
    assert place.names() == ["job-00000001", "job-00000003"]
    assert {path.partition("/")[0] for path in world.objects()} == {".job.owner", *place.names()}


def test_a_master_that_dies_while_it_sends_leaves_nothing_that_counts(world: Store) -> None:
    place = world.place()
    keep(place, checkpoint(1))
    trouble("manifest", refuse)
    with pytest.raises(EdlError):
        keep(place, checkpoint(2))
    calm()
    assert world.objects("job-00000002"), "it was on its way"
    place.close()
    again = world.place()
    assert not world.objects("job-00000002")
    found, damaged = newest(again)
    assert version(found) == 1
    assert damaged == []


def test_one_that_hangs_is_given_up_and_can_never_spoil_a_later_one(
    world: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        store_calls, "TIMEOUTS", store_calls.StoreTimeouts(call_s=0.3, slowest_bytes_per_s=1e9)
    )
    place = world.place()
    keep(place, checkpoint(1))
    going_on = threading.Event()
    trouble("array-0000", lambda: going_on.wait(LONG_S))
    with pytest.raises(EdlError) as caught:
        keep(place, checkpoint(2))
    assert "made no progress" in caught.value.what
    calm()
    monkeypatch.setattr(store_calls, "TIMEOUTS", store_calls.StoreTimeouts())
    keep(place, checkpoint(3))
    going_on.set()  # the call that was given up ends now, and writes what it was to write
    for thread in threading.enumerate():
        if thread.name == "store":
            thread.join(LONG_S)
    found, damaged = newest(place)
    assert damaged == []
    assert version(found) == 3


@pytest.mark.parametrize("name", ["kept[1]", "kept*", "ke?t"])
def test_a_place_that_reads_like_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    """What is removed there would be what is elsewhere."""
    place = ObjectStoreCheckpoints(f"memory://bucket/{name}", "job", 3, tmp_path)
    with pytest.raises(EdlError) as caught:
        place.prepare()
    assert caught.value.code == ErrorCode.USAGE
    assert name in caught.value.what


def test_a_store_that_does_not_serve_is_not_taken_for_damage(world: Store) -> None:
    """Else the job would go back further than it has to, or begin anew."""
    place = world.place()
    for number in (1, 2):
        keep(place, checkpoint(number))
    trouble("get", refuse)
    with pytest.raises(EdlError) as caught:
        newest(place)
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE


def test_what_is_overtaken_is_not_sent(world: Store) -> None:
    place = world.place()
    first = place.write(checkpoint(1))
    second = place.write(checkpoint(2))
    assert not place.publish(first)
    assert place.publish(second)
    assert place.names() == ["job-00000001"]
    assert version(newest(place)[0]) == 2


def test_nothing_stays_on_this_machine(world: Store) -> None:
    place = world.place()
    keep(place, checkpoint(1))
    found, _ = newest(place)
    keep(place, checkpoint(2))
    left = [path.name for path in (world.here / "job").iterdir()]
    assert left == [".job.owner"]
    assert found is not None
    assert found.arrays["values/trainable/float32"][3] == 4.0


def test_a_master_that_is_started_again_does_not_wait_for_the_store(world: Store) -> None:
    first = world.place()
    first.close()
    place = world.place(now=False)
    assert world.read(".job.owner").startswith(b"1 "), "the store was not asked"
    keep(place, checkpoint(1))
    assert world.read(".job.owner").startswith(b"2 ")


def test_a_manifest_that_names_what_is_elsewhere_is_damage(world: Store) -> None:
    place = world.place()
    keep(place, checkpoint(1))
    from edl_master.adapters import checkpoint_files as files

    body = files._unseal(world.read("job-00000001/manifest.json"))
    body["files"]["../../../etc/x"] = {"bytes": 1, "crc32": 1}
    world.write("job-00000001/manifest.json", files._seal(body))
    with pytest.raises(EdlError) as caught:
        newest(place)
    assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED
    assert "../../../etc/x" in caught.value.what


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    """A server that speaks S3, and the environment that leads there."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    fsspec.filesystem("s3").clear_instance_cache()
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    server.stop()


@pytest.mark.usefixtures("s3")
def test_a_large_file_is_sent_in_parts(tmp_path: Path) -> None:
    local = tmp_path / "large"
    local.write_bytes(content := bytes(range(256)) * (40 << 12))
    uri = f"{unused_uri('s3')}/large"
    object_stores.write(uri, b"before")
    object_stores.upload(local, uri)
    assert object_stores.read(uri) == content
    system, path = filesystem(uri)
    assert system.info(path)["ETag"].endswith('-3"'), "the number of parts"


@pytest.mark.usefixtures("s3")
def test_outputs_with_large_files_arrive_whole(tmp_path: Path) -> None:
    local = tmp_path / "model"
    local.mkdir()
    (local / "large").write_bytes(content := bytes(range(256)) * (40 << 12))
    (local / "small").write_bytes(b"small")
    place = unused_uri("s3")
    uri = f"{place}/model"
    object_stores.write(f"{place}/before", b"makes the bucket")
    object_stores.put(local, uri, "job")
    assert object_stores.read(f"{uri}/large") == content
    assert object_stores.read(f"{uri}/small") == b"small"
    alone = f"{place}/large"
    object_stores.put(local / "large", alone, "job")
    assert object_stores.read(alone) == content


def test_how_outputs_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Store:
        def __init__(self, protocol: str) -> None:
            self.protocol = (protocol,)

        def exists(self, path: str) -> bool:
            return False

        def put(self, *_: str, **how: Any) -> None:
            asked.append(
                {name: how.get(name) for name in ("chunksize", "max_concurrency", "batch_size")}
            )

        put_file = put

        def copy(self, *_: str, **__: Any) -> None:
            pass

        def rm(self, *_: str, **__: Any) -> None:
            pass

    def filesystem(uri: str) -> tuple[Store, str]:
        return Store(uri.partition("://")[0]), "bucket/model"

    monkeypatch.setattr(store_calls, "filesystem", filesystem)
    local = tmp_path / "model"
    local.mkdir()
    with (local / "large").open("wb") as file:
        file.truncate(10_000 * (64 << 20))  # a hole: the disk holds nothing of it
    object_stores.put(local, "s3://bucket/model", "job")
    object_stores.put(local / "large", "s3://bucket/model", "job")
    object_stores.put(local, "memory://bucket/model", "job")
    assert asked == [
        {"chunksize": 64 << 20, "max_concurrency": 3, "batch_size": 4},
        {"chunksize": 64 << 20, "max_concurrency": 3, "batch_size": None},
        {"chunksize": None, "max_concurrency": None, "batch_size": None},
    ]


@pytest.mark.usefixtures("s3")
class TestS3(CheckpointSuite):
    """The rules of the suite, over HTTP, with the client that users have."""

    test_any_damage_is_found_and_the_one_before_is_used = None  # a minute of small requests

    def fresh(self, here: Path) -> World:
        return Store(unused_uri("s3"), here)
