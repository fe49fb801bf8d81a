"""The counting model: every weight is exactly the number of epochs, or a record was lost.

One weight per record, learning rate 1, gradient -1 for each record of the batch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Edl, eventually
from safetensors.numpy import load_file

EPOCHS = 3


def counts(output: Path) -> np.ndarray:
    (weights,) = load_file(output / "parameters.safetensors").values()
    return weights.reshape(-1)


def arguments(data: Path, total: int, output: Path, *more: str) -> list[str]:
    return [
        *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", "counting"),
        *("--params", f"size={total}", "--data", str(data), "--num-epochs", str(EPOCHS)),
        # 997 records in tasks of 100 in minibatches of 16: nothing divides.
        *("--minibatch-size", "16", "--records-per-task", "100"),
        *("--output", str(output), "-o", "json", *more),
    ]


@pytest.mark.parametrize("workers", ["1", "3"])
@pytest.mark.parametrize(
    "update",
    [
        ("--update", "async", "--no-overlap"),
        ("--update", "async", "--overlap"),
        ("--update", "sync", "--gradient-reduction", "sum"),
        ("--update", "bounded", "--max-staleness", "1", "--overlap"),
        ("--local-steps", "3"),
    ],
    ids=" ".join,
)
def test_every_record_trains_exactly_once_per_epoch(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    workers: str,
    update: tuple[str, ...],
) -> None:
    total = 997
    output = tmp_path / "model"
    done = edl(*arguments(numbered(total), total, output, *update, "--num-workers", workers))
    assert done.json["records_trained"] == EPOCHS * total
    np.testing.assert_array_equal(counts(output), EPOCHS)


@pytest.mark.parametrize(
    "options", [("--overlap",), ("--local-steps", "3")], ids=["async", "local"]
)
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "preempted"])
def test_workers_that_die_lose_and_repeat_nothing(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    sign: signal.Signals,
    options: tuple[str, ...],
) -> None:
    total = 8_009
    output = tmp_path / "model"
    running = edl.start(
        *arguments(
            numbered(total), total, output, "--num-workers", "2", "--name", "dying", *options
        )
    )
    try:
        eventually(lambda: edl.run("status", "dying").code == 0, "the job is there")
        victims: set[int] = set()
        for kills in range(1, 4):
            eventually(
                lambda kills=kills: int(edl.status("dying")["records_trained"]) > kills * 2_000,
                "training goes on",
            )
            pid = eventually(lambda: set(edl.workers("dying").values()) - victims, "a worker").pop()
            victims.add(pid)
            os.kill(pid, sign)
        out, err = running.communicate(timeout=240)
    finally:
        running.kill()
    assert running.returncode == 0, err
    status = edl.status("dying")
    assert int(status["records_trained"]) == EPOCHS * total, out
    assert status["preemptions"] == 3, edl("events", "dying").out
    np.testing.assert_array_equal(counts(output), EPOCHS)
