"""Checkpoints in a store, over HTTP with the client that people have: as users meet them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Edl, HeldTraining, eventually
from counting import check, event_kinds, records_trained, train
from safetensors.numpy import load_file
from store_servers import ACCESS, S3Server
from test_sync_training import MODEL, RECORDS, make_problem

BUCKET = "s3://kept/of/mine"

SLOW = MODEL.replace(
    """return dataset.map(parse)""",
    """def slowly(x):
        time.sleep(float(os.environ.get("EDL_TEST_RECORD_S", "0")))
        return x

    def delay(x, y):
        return tf.ensure_shape(tf.numpy_function(slowly, [x], tf.float32), [3]), y

    return dataset.map(parse).map(delay)""",
).replace("import keras", "import os\nimport time\n\nimport keras", 1)
"""The model of the sync tests, which takes as long for each record as the environment says."""


def objects(store: S3Server) -> list[str]:
    return sorted(path.removeprefix("kept/of/mine/") for path in store.system.find("kept"))


@pytest.fixture
def store(edl: Edl) -> Iterator[S3Server]:
    store = S3Server("kept")
    edl.env |= store.environment
    yield store
    store.stop()


def test_a_stopped_job_goes_on_from_the_store_with_any_number_of_servers(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining, store: S3Server
) -> None:
    total, epochs, output = 61, 24, tmp_path / "model"
    given = train(
        *(numbered(total), total, output, "--checkpoint-dir", BUCKET, "--checkpoint-steps", "2"),
        *("--name", "again"),
        epochs=epochs,
        held=held,
    )
    before = 0
    for servers in (0, 2):
        edl(*given, "--parameter-servers", str(servers), "--detach")
        eventually(
            lambda before=before: records_trained(edl, "again") > before + total,
            "an epoch has passed",
            every=0.02,
        )
        edl("stop", "again")
        before = int(edl.status("again")["records_trained"])
        assert total < before < epochs * total
        edl("delete", "again", "--yes")
    names = sorted({path.partition("/")[0] for path in objects(store) if "/" in path})
    assert len(names) == 3, "those before are removed"
    assert [path for path in objects(store) if f"{names[-1]}/part-1/" in path]

    # The newest one loses a part: the one before is used, and what is missing trains again.
    store.system.rm_file(f"kept/of/mine/{names[-1]}/part-1/array-0000.npy")
    held.release()
    done = edl(*given, "--parameter-servers", "1")
    assert done.json["records_trained"] == epochs * total
    check(output, total, epochs)
    told = edl("events", "again").out
    assert f"Checkpoint {names[-1]} is damaged and was skipped" in told
    assert "part-1/array-0000.npy is missing" in told
    assert f"Continues from checkpoint {names[-2]}" in told


def test_a_store_that_is_gone_for_a_while_costs_one_checkpoint(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining, store: S3Server
) -> None:
    total, output = 501, tmp_path / "model"
    given = train(numbered(total), total, output, epochs=1000, held=held)
    edl(
        *(*given, "--minibatch-size", "2", "--name", "gap", "--detach"),
        *("--checkpoint-dir", BUCKET, "--checkpoint-steps", "10"),
    )
    eventually(lambda: "CheckpointTaken" in event_kinds(edl, "gap"), "one is taken")
    store.stop()
    eventually(lambda: "CheckpointFailed" in event_kinds(edl, "gap"), "one is not", timeout=200)
    before = int(edl.status("gap")["records_trained"])
    eventually(lambda: records_trained(edl, "gap") > before, "training goes on")
    # As the runbook of old checkpoints says: the events tell which were not stored, and why.
    assert re.search(r"was not stored: .*\w", edl("events", "gap").out)
    store.start()
    edl("stop", "gap")
    assert event_kinds(edl, "gap")[-1] == "CheckpointTaken", "the last one is kept again"
    assert edl.status("gap")["state"] == "CANCELLED"


def test_a_store_that_is_not_there_is_found_before_training(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    done = edl.run(
        *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", "counting"),
        *("--params", "size=10", "--data", str(numbered(10)), "--name", "none"),
        *("--checkpoint-dir", BUCKET, "--output", str(tmp_path / "model")),
        env={**ACCESS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"},
    )
    assert done.code not in (0, 70), str(done)
    assert "does not serve" in done.err
    assert BUCKET in done.err


def test_sync_training_that_was_stopped_equals_one_that_was_not(
    edl: Edl, tmp_path: Path, store: S3Server
) -> None:
    """The weights are those that Keras finds, too, so both runs are right and not only alike."""
    epochs = 16
    zoo, data, expected = make_problem(tmp_path, epochs, SLOW)
    given = [
        *("train", "--model-zoo", str(zoo), "--model-def", "small", "--data", str(data)),
        *("--update", "sync", "--grads-to-wait", "14", "--name", "sync"),
        *("--num-epochs", str(epochs), "--minibatch-size", "8", "--records-per-task", "21"),
        *("--output", str(tmp_path / "model"), "--checkpoint-dir", BUCKET),
        *("--parameter-servers", "2"),
    ]
    # A minute at least: the job cannot be over before it is stopped.
    edl(*given, "--detach", env={"EDL_TEST_RECORD_S": "0.04"})
    eventually(lambda: records_trained(edl, "sync") > 2 * RECORDS, "some updates", every=0.02)
    edl("stop", "sync")
    assert 0 < int(edl.status("sync")["records_trained"]) < epochs * RECORDS
    edl("delete", "sync", "--yes")
    result = edl(*given, "-o", "json").json
    assert "CheckpointRestored" in event_kinds(edl, "sync")
    assert result["records_trained"] == epochs * RECORDS
    assert result["steps"] == epochs * 14
    found = sorted(load_file(tmp_path / "model" / "parameters.safetensors").values(), key=np.size)
    for ours, keras in zip(found, sorted(expected, key=np.size), strict=True):
        np.testing.assert_allclose(ours, keras, rtol=2e-3, atol=2e-4)
