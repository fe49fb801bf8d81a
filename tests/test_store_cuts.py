"""Data and results are in a store: workers, master and store die while jobs train and predict."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Edl, HeldTraining, eventually, read_all
from counting import check, records_trained, train
from store_servers import S3Server

import recordio.example

BUCKET = "kept"
TOTAL, EPOCHS = 483, 2


@pytest.fixture
def store(edl: Edl) -> Iterator[S3Server]:
    store = S3Server(BUCKET)
    edl.env |= store.environment
    yield store
    store.stop()


def master_pid(edl: Edl, name: str) -> int:
    """Return the process number of the newest master, which may still wait for the store."""
    return int(json.loads((edl.job_dir(name) / "master-process.json").read_bytes())["pid"])


def cut(edl: Edl, name: str, store: S3Server, progress: Callable[[], int]) -> None:
    """A worker dies, then the store goes away, and the master dies without it."""
    eventually(lambda: progress() > 0, "it has begun", every=0.02)
    victim = eventually(lambda: edl.workers(name), "workers").popitem()[1]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in edl.workers(name).values(), "it is missed", every=0.02)
    store.stop()
    before = progress()
    assert 0 < before < TOTAL
    dead = master_pid(edl, name)
    os.kill(dead, signal.SIGKILL)
    eventually(lambda: master_pid(edl, name) != dead, "another master")
    store.start()
    eventually(lambda: progress() > before, "it goes on", every=0.02)


def test_what_dies_while_a_job_trains_and_predicts_costs_no_record(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    held: HeldTraining,
    store: S3Server,
) -> None:
    for file in sorted(numbered(TOTAL).iterdir()):
        store.system.put_file(str(file), f"{BUCKET}/numbers/{file.name}")
    data, model = f"s3://{BUCKET}/numbers/*.recordio", f"s3://{BUCKET}/model"
    cache = tmp_path / "cache"
    edl(
        *train(data, TOTAL, model, "--name", "t", "--detach", epochs=EPOCHS, held=held),
        *("--num-workers", "2", "--snapshot-interval", "1s", "--data-cache", str(cache)),
    )
    cut(edl, "t", store, lambda: records_trained(edl, "t"))
    held.release()
    edl("wait", "t")
    assert int(edl.status("t")["records_trained"]) == EPOCHS * TOTAL
    store.system.get(f"{BUCKET}/model", str(tmp_path / "model"), recursive=True)
    check(tmp_path / "model", TOTAL, EPOCHS)
    assert [path for path in cache.rglob("*") if path.is_file()], "read once for both epochs"

    held.hold()
    output = f"s3://{BUCKET}/predictions.recordio"
    edl(
        *("predict", "--trained-model", model, "--data", data, "--output", output),
        *("--keep", "number", "--name", "p", "--num-workers", "2", "--detach"),
        *("--records-per-task", "20", "--snapshot-interval", "1s"),
    )

    def count_predicted() -> int:
        return 20 * len(list((edl.job_dir("p") / "parts").glob("*.recordio")))

    cut(edl, "p", store, count_predicted)
    held.release()
    edl("wait", "p")
    store.system.get_file(f"{BUCKET}/predictions.recordio", str(tmp_path / "predictions"))
    rows = [recordio.example.decode(record) for record in read_all(tmp_path / "predictions")]
    assert [row["number"][0] for row in rows] == list(range(TOTAL))
    assert {row["prediction"][0] for row in rows} == {EPOCHS}
    left = [path for path in store.system.find(BUCKET) if ".tmp" in path or "/." in path]
    assert not left
