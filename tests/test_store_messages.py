"""What every command says of a store that refuses it: what, where and a remedy, no exceptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from conftest import ROOT, Done
from store_proxy import Fault, StoreProxy
from store_servers import GoogleServer, S3Server, StoreServer

from edl.__main__ import run

Call = Callable[..., Done]
BUCKET = "kept"


@pytest.fixture(params=[S3Server, GoogleServer], ids=["s3", "gs"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    make: Callable[[str], StoreServer] = request.param
    server = make(BUCKET)
    yield server
    server.stop()


@pytest.fixture
def proxy(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    """Run a proxy that the clients of this process take for the server."""
    proxy = StoreProxy(server.url)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value.replace(server.url, proxy.url))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.get_filesystem_class(server.scheme).clear_instance_cache()
    yield proxy
    proxy.close()
    fsspec.get_filesystem_class(server.scheme).clear_instance_cache()


@pytest.fixture
def edl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("number,label\n1,2\n")

    def call(*args: str) -> Done:
        capfd.readouterr()
        return Done(args, run(args), *capfd.readouterr())

    return call


def commands(place: str) -> list[tuple[str, ...]]:
    counting = ("--model-zoo", str(ROOT / "model_zoo"), "--model-def", "counting")
    counting = (*counting, "--params", "size=1")
    sql = ("sql", "--db", "duckdb://", "--models", place)
    return [
        ("data", "convert", "t.csv", "--to", f"{place}/rows"),
        ("data", "convert", f"{place}/t.csv", "--to", "rows"),
        ("data", "inspect", f"{place}/rows/*.recordio"),
        ("train", *counting, "--data", f"{place}/*.recordio", "--output", "model"),
        ("train", *counting, "--data", "t.csv", "--output", f"{place}/model"),
        ("evaluate", "--trained-model", f"{place}/model", "--data", "t.csv"),
        (*sql, "-e", "SHOW TRAIN m"),
        (
            *(*sql, "--model-zoo", str(ROOT / "model_zoo")),
            *("-e", "SELECT * FROM 't.csv' TRAIN regressor.DNN INTO m"),
        ),
    ]


FAULTS: dict[str, list[Fault]] = {
    "s3": [(403, "AccessDenied"), (403, "InvalidAccessKeyId"), (400, "ExpiredToken")],
    "gs": [401, 403],
}


def check(done: Done, place: str) -> None:
    """That this is one error with everything that an error has."""
    assert done.code not in (0, 70), str(done)
    assert place in done.err, str(done)
    assert done.err.count("what to do: ") == 1, str(done)
    assert not re.search(r"[a-zA-Z](Error|Exception)\b|Errno|Traceback", done.err), str(done)


def test_a_store_that_refuses_is_told_in_words(
    edl: Call, server: StoreServer, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordio.storage.stored_file.RETRY_S", 0.0)
    place = f"{server.scheme}://{BUCKET}/mine"
    for fault in FAULTS[server.scheme]:
        proxy.fault = lambda method, path, fault=fault: fault
        for command in commands(place):
            done = edl(*command)
            check(done, place)
            assert re.search("the store (denies access|refuses the request)", done.err), str(done)
            assert "Check the credentials" in done.err, str(done)


def test_a_bucket_that_is_missing_is_told_in_words(
    edl: Call, server: StoreServer, proxy: StoreProxy
) -> None:
    place = f"{server.scheme}://missing/mine"
    for command in commands(place):
        check(edl(*command), place)
        assert not server.system.exists("missing"), f"{command} has made the bucket"
