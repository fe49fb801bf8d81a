"""Whole jobs are cut while their trained model is sent to a store: it is whole or not there.

The upload stands still at a request. Processes of the job are killed there, or the store refuses
the rest; the job, or ``edl resume`` or ``edl export``, brings the model afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ROOT, Edl, eventually
from counting import check, train
from store_proxy import Fault, StoreProxy
from store_servers import GoogleServer, S3Server, StoreServer

from edl_runtime.local import supervision

BUCKET, TOTAL, EPOCHS = "kept", 301, 1
WAIT_S = 600.0
EVERYTHING = "everything"
SENT, MOVED = "a worker sends it beside the output", "the master moves it to the output"


def is_written(store: StoreServer, stage: str) -> Callable[[str, str], bool]:
    """Whether a request, by its method and path, writes an object of the model at this stage."""
    beside, there = f"/{BUCKET}/out/.model.edl-", f"/{BUCKET}/out/model/"
    if store.scheme == "s3":
        place = beside if stage == SENT else there
        return lambda method, path: method == "PUT" and path.startswith(place)
    if stage == MOVED:
        return lambda method, path: "rewriteTo" in path or "copyTo" in path
    # The address of an upload to Google does not name the object; the first ones are no model.
    return lambda method, path: (
        "/upload/" in path and any(each.startswith(".model.edl-") for each in objects(store))
    )


class HeldUpload:
    """The second object that is written below a place stands still, until ``release``."""

    def __init__(self, proxy: StoreProxy, is_written: Callable[[str, str], bool]) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()
        self._is_written = is_written
        self._lock = threading.Lock()
        self._left = 1
        self._fault: Fault = "reset"
        proxy.fault = self._hold

    def release(self, fault: Fault) -> None:
        """Let requests pass again; the one that was held fails."""
        self._fault = fault
        self._go.set()

    def _hold(self, method: str, path: str) -> Fault:
        if self._go.is_set() or not self._is_written(method, path):
            return None
        with self._lock:
            self._left -= 1
            if self._left >= 0:
                return None
        self.reached.set()
        assert self._go.wait(WAIT_S)
        return self._fault


@pytest.fixture(params=[S3Server], ids=["s3"])
def store(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    make: Callable[[str], StoreServer] = request.param
    store = make(BUCKET)
    yield store
    store.stop()


@pytest.fixture
def output(store: StoreServer) -> str:
    return f"{store.scheme}://{BUCKET}/out/model"


@pytest.fixture
def proxy(edl: Edl, store: StoreServer) -> Iterator[StoreProxy]:
    """The store as all processes of jobs see it."""
    proxy = StoreProxy(store.url)
    edl.env |= {
        name: value.replace(store.url, proxy.url) for name, value in store.environment.items()
    }
    yield proxy
    proxy.fault = lambda method, path: None
    proxy.close()


def objects(store: StoreServer) -> list[str]:
    return sorted(
        path.removeprefix(f"{BUCKET}/out/") for path in store.system.find(f"{BUCKET}/out")
    )


def master_pid(edl: Edl, name: str) -> int:
    return int(json.loads((edl.job_dir(name) / "master-process.json").read_bytes())["pid"])


def pids_of(edl: Edl, name: str, who: str) -> list[int]:
    overseer = supervision.supervisor_pid(edl.job_dir(name))
    assert overseer is not None
    workers = list(edl.workers(name).values())
    return {
        "worker": workers,
        "master": [master_pid(edl, name)],
        EVERYTHING: [overseer, master_pid(edl, name), *workers],
    }[who]


def check_whole(edl: Edl, store: StoreServer, tmp_path: Path, to: str = "model") -> None:
    """The model is that of the whole training, all of it is there, and nothing else."""
    place = tmp_path / f"got-{to}"
    store.system.get(f"{BUCKET}/out/{to}", str(place), recursive=True)
    check(place, TOTAL, EPOCHS)
    tops = {path.partition("/")[0] for path in objects(store)}
    assert tops == {to}, "nothing else is beside it"
    assert f"{to}/trained_model.pb" in objects(store)
    assert f"{to}/model.keras" in objects(store)


@pytest.mark.parametrize(
    ("store", "kills"),
    [
        (S3Server, [("worker", SENT), (EVERYTHING, MOVED)]),
        (S3Server, [("master", SENT), ("master", MOVED)]),
        (GoogleServer, [(EVERYTHING, SENT)]),
    ],
    indirect=["store"],
    ids=["worker, everything", "master twice", "everything at Google"],
)
def test_a_job_that_is_killed_while_its_model_is_sent(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    store: StoreServer,
    proxy: StoreProxy,
    output: str,
    kills: list[tuple[str, str]],
) -> None:
    command = train(numbered(TOTAL), TOTAL, output, "--name", "up", "--detach", epochs=EPOCHS)
    former: HeldUpload | None = None
    for who, stage in kills:
        held = HeldUpload(proxy, is_written(store, stage))
        if former is None:
            edl(*command)
        else:
            former.release("reset")
        assert held.reached.wait(WAIT_S), "the model is being sent"
        assert "model/trained_model.pb" not in objects(store)
        use = ("--trained-model", output, "--data", str(tmp_path / "numbered"))
        refused = edl.run("evaluate", *use)
        assert refused.code == 4, str(refused)
        for pid in pids_of(edl, "up", who):
            os.kill(pid, signal.SIGKILL)
        former = held
    assert former is not None
    former.release("reset")
    # Where nothing of a job runs, the first command that looks at it starts it again.
    edl("wait", "up")
    assert edl.status("up")["state"] == "SUCCEEDED"
    check_whole(edl, store, tmp_path)


def test_a_job_whose_store_refuses_its_model_is_resumed_or_exported(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    store: StoreServer,
    proxy: StoreProxy,
    output: str,
) -> None:
    """The store refuses it beside the output, and, once the job is resumed, at the output."""
    job = train(numbered(TOTAL), TOTAL, output, "--name", "no", epochs=EPOCHS)
    for command, stage in ((job, SENT), (["resume", "no"], MOVED)):
        held = HeldUpload(proxy, is_written(store, stage))
        edl(*command, "--detach")
        assert held.reached.wait(WAIT_S), "the model is being sent"
        proxy.fault = lambda method, path: (403, "AccessDenied") if method == "PUT" else None
        held.release((403, "AccessDenied"))
        failed = edl.run("wait", "no")
        assert failed.code == 7, str(failed)
        assert "the store denies access" in failed.err
        assert "edl resume no" in failed.err
        assert "model/trained_model.pb" not in objects(store)
        proxy.fault = lambda method, path: None
        edl("export", "no", "--output", f"s3://{BUCKET}/out/other")
        assert "other/trained_model.pb" in objects(store)
        store.system.rm(f"{BUCKET}/out/other", recursive=True)
    edl("resume", "no")
    check_whole(edl, store, tmp_path)


def test_a_command_that_is_killed_while_the_model_is_sent_costs_nothing(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    store: StoreServer,
    proxy: StoreProxy,
    output: str,
) -> None:
    held = HeldUpload(proxy, is_written(store, MOVED))
    with edl.start(
        *train(numbered(TOTAL), TOTAL, output, "--name", "cmd", epochs=EPOCHS)
    ) as running:
        assert held.reached.wait(WAIT_S), "the model is being sent"
        running.kill()
    held.release("reset")
    edl("wait", "cmd")
    check_whole(edl, store, tmp_path)


def test_a_statement_that_is_killed_while_its_model_is_sent_has_its_model(
    edl: Edl, tmp_path: Path, store: StoreServer, proxy: StoreProxy
) -> None:
    database = tmp_path / "my.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, age REAL, wage REAL)")
        rows = [(number, number % 7, 100.0 * (number % 7)) for number in range(60)]
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    held = HeldUpload(proxy, is_written(store, MOVED))
    common = ("sql", "--db", f"sqlite:///{database}", "--models", f"s3://{BUCKET}/out")
    common = (*common, "--model-zoo", str(ROOT / "model_zoo"))
    statement = "SELECT age, wage FROM people TRAIN regressor.DNN WITH train.epoch=1 INTO model"
    with edl.start(*common, "-e", statement) as running:
        assert held.reached.wait(WAIT_S), "the model is being sent"
        running.kill()
        assert isinstance(running, subprocess.Popen)
    told = edl.run(*common, "-e", "SHOW TRAIN model").err
    assert "SHOW TRAIN model" in told
    held.release("reset")
    (job,) = (path.name for path in (edl.home / "jobs").iterdir())
    edl("wait", job)
    assert edl(*common, "-e", "SHOW TRAIN model").out == f"{statement}\n"
    edl(*common, "-e", "SELECT id, age FROM people PREDICT people.guess USING model")
    eventually(lambda: not [each for each in objects(store) if each.startswith(".")], "tidy")
    with closing(sqlite3.connect(database)) as connection:
        done = connection.execute("SELECT COUNT(guess), COUNT(*) FROM people").fetchone()
    assert done == (60, 60)
