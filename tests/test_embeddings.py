"""Embedding tables through the command line: exactly once, moved Keras layers, trained models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Edl, eventually, read_all
from safetensors.numpy import load_file

import recordio.example

EPOCHS = 2
SPREAD = np.int64(-7046029254386353131)  # as in model_zoo/counting_rows.py


def arguments(model: str, data: Path, output: Path, *more: str) -> list[str]:
    return [
        *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", model),
        *("--data", str(data), "--num-epochs", str(EPOCHS)),
        # 997 records in tasks of 100 in minibatches of 16: nothing divides.
        *("--minibatch-size", "16", "--records-per-task", "100"),
        *("--output", str(output), "-o", "json", *more),
    ]


def check_counts(output: Path, total: int, times: int) -> None:
    """Every id has a row, and every row was trained so many times."""
    arrays = load_file(output / "parameters.safetensors")
    with np.errstate(over="ignore"):
        expected = np.sort(np.arange(total) * SPREAD)
    np.testing.assert_array_equal(arrays["count/table_ids"], expected)
    np.testing.assert_array_equal(arrays["count/table_rows"], np.full((total, 1), times))


@pytest.mark.parametrize(
    "update",
    [("--update", "async"), ("--update", "sync", "--gradient-reduction", "sum")],
    ids=lambda options: options[1],
)
def test_every_record_trains_its_row_exactly_once_per_epoch(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], update: tuple[str, ...]
) -> None:
    total, output = 997, tmp_path / "model"
    data = numbered(total)
    edl(*arguments("counting_rows", data, output, *update, "--num-workers", "2"))
    check_counts(output, total, EPOCHS)


def test_local_steps_are_for_models_without_tables(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    done = edl.run(
        *arguments("counting_rows", numbered(100), tmp_path / "model", "--local-steps", "2")
    )
    assert done.code == 4
    assert "count" in done.err
    assert "--local-steps is for models without" in done.err


def test_workers_that_are_killed_lose_and_repeat_no_row(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    total, output = 6_007, tmp_path / "model"
    running = edl.start(
        *arguments("counting_rows", numbered(total), output),
        *("--num-workers", "2", "--name", "rows"),
    )
    try:
        eventually(lambda: edl.run("status", "rows").code == 0, "the job is there")
        victims: set[int] = set()
        for kills in range(1, 4):
            eventually(
                lambda kills=kills: int(edl.status("rows")["records_trained"]) > kills * 1_000,
                "training goes on",
            )
            pid = eventually(lambda: set(edl.workers("rows").values()) - victims, "a worker").pop()
            victims.add(pid)
            os.kill(pid, signal.SIGKILL)
        out, err = running.communicate(timeout=240)
    finally:
        running.kill()
    assert running.returncode == 0, err
    status = edl.status("rows")
    assert int(status["records_trained"]) == EPOCHS * total, out
    assert [int(rows) for rows in status["embedding_rows"].values()] == [total]
    check_counts(output, total, EPOCHS)


def test_a_trained_model_is_evaluated_predicts_serves_and_is_trained_on(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    total, first, second = 200, tmp_path / "first", tmp_path / "second"
    data = numbered(total)
    edl(*arguments("counting_rows", data, first, "--validation-data", str(data)))
    evaluated = edl("evaluate", "--trained-model", str(first), "--data", str(data), "-o", "json")
    assert evaluated.json["metrics"]["mean_count"] == EPOCHS
    predicted = tmp_path / "predicted"
    edl("predict", "--trained-model", str(first), "--data", str(data), "--output", str(predicted))
    answers = [recordio.example.decode(r)["prediction"] for r in read_all(predicted)]
    assert np.concatenate(answers).tolist() == [EPOCHS] * total

    edl(*arguments("counting_rows", data, second, "--init-from", str(first)))
    check_counts(second, total, 2 * EPOCHS)


def test_a_large_keras_embedding_counts_as_before(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path]
) -> None:
    total, output = 500, tmp_path / "model"
    done = edl(
        *arguments("counting", numbered(total), output, "--params", f"size={total}"),
        *("--embedding-threshold", "1", "--num-workers", "2", "--name", "moved"),
    )
    assert done.json["records_trained"] == EPOCHS * total
    (weights,) = load_file(output / "parameters.safetensors").values()
    np.testing.assert_array_equal(weights.reshape(-1), EPOCHS)
    log = "".join(p.read_text() for p in edl.job_dir("moved").glob("logs/worker-*.log"))
    assert "is served row by row" in log


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Data that a program in tools/ has made."""

    def make(tool: str) -> Path:
        place = tmp_path_factory.getbasetemp() / tool
        if not place.exists():
            command = [sys.executable, f"tools/{tool}.py", str(place), "--records", "12000"]
            subprocess.run(command, cwd=ROOT, check=True)
        return place

    return make


@pytest.mark.parametrize("model", ["deepfm", "wide_and_deep"])
@pytest.mark.parametrize(("kind", "tool"), [("criteo", "clicks"), ("census", "census")])
def test_the_zoo_s_models_with_tables_learn(
    edl: Edl, tmp_path: Path, made: Callable[[str], Path], model: str, kind: str, tool: str
) -> None:
    data, output = made(tool), tmp_path / "model"
    done = edl(
        *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", f"ctr.{kind}_{model}"),
        *("--data", f"{data}/train/*.recordio", "--validation-data", f"{data}/test/*.recordio"),
        *("--params", "dim=8, hidden=[32], lr=0.05", "--num-epochs", "3", "--num-workers", "2"),
        *("--minibatch-size", "64", "--output", str(output), "-o", "json"),
    )
    assert done.json["records_trained"] == 3 * 12_000
    # A coin has 0.5; what separates them is known only by weights of ids and words.
    assert done.json["metrics"]["auc"] > 0.62
    assert (output / "model.keras").is_file()
