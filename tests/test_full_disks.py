"""Disks that are full or read-only: jobs fail with the reason, and what was there stays."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Edl, eventually
from counting import train
from refusals import GOOD, RESOURCE, attempt, check_refusal, nothing_began
from safetensors.numpy import load_file

from edl_testing.requirements import do_without


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1.2 MiB, on which a job still may begin."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", str(place)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        do_without(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    # A process of a job that has just failed may still end.
    eventually(lambda: not subprocess.run(["umount", str(place)], check=False).returncode, "umount")


RECORDS, EPOCHS = 500, 2
LARGE = 1_000_000
"""Weights of a counting model that the small disk has no room for."""


def test_a_job_whose_model_found_no_room_is_resumed_when_there_is_some(
    edl: Edl, small_disk: Path, numbered: Callable[..., Path]
) -> None:
    data, output = numbered(RECORDS), small_disk / "model"
    done = edl.run(*train(data, LARGE, output, "--name", "full", epochs=EPOCHS))
    check_refusal(done, RESOURCE, str(small_disk), "space", "edl resume full")
    assert (done.json["state"], done.json["error"]["code"]) == ("FAILED", "DISK_FULL")
    assert not list(small_disk.iterdir())

    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    resumed = edl("resume", "full", "-o", "json").json
    assert resumed["state"] == "SUCCEEDED"
    assert resumed["records_trained"] == EPOCHS * RECORDS
    (weights,) = load_file(output / "parameters.safetensors").values()
    assert weights.reshape(-1)[:RECORDS].tolist() == [EPOCHS] * RECORDS
    assert not weights.reshape(-1)[RECORDS:].any()
    evaluated = edl("evaluate", "--trained-model", str(output), "--data", str(data), "-o", "json")
    assert evaluated.json["metrics"]["mean_count"] == EPOCHS


def test_a_parameter_server_that_finds_no_room_for_a_checkpoint_ends_the_job_at_once(
    edl: Edl, tmp_path: Path, small_disk: Path, numbered: Callable[..., Path]
) -> None:
    """A master that waits for the server's part waits for ten minutes, longer than this command."""
    done = edl.run(
        *train(numbered(RECORDS), LARGE, tmp_path / "model", epochs=EPOCHS),
        *("--parameter-servers", "1", "--name", "full"),
        *("--checkpoint-dir", str(small_disk / "checkpoints"), "--checkpoint-steps", "2"),
    )
    check_refusal(done, RESOURCE, str(small_disk), "space", "edl resume full")
    assert (done.json["state"], done.json["error"]["code"]) == ("FAILED", "DISK_FULL")


@pytest.mark.parametrize("option", ["--output", "--checkpoint-dir", "--tensorboard-dir"])
def test_a_dry_run_finds_a_place_on_a_disk_that_is_read_only(
    edl: Edl, tmp_path: Path, small_disk: Path, digit_data: Path, option: str
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    place = str(small_disk / "below" / "place")
    options = {"--output": str(tmp_path / "model"), option: place}
    model = ("--model-zoo", str(ROOT / "model_zoo"), "--model-def", "mnist.mnist_functional_api")
    check_refusal(
        edl.run(
            *("train", "--dry-run", *model, "--data", str(digit_data / "train")),
            *(part for pair in options.items() for part in pair),
        ),
        RESOURCE,
        *("read-only", place),
    )
    nothing_began(edl)


def test_a_disk_that_is_full_when_predictions_are_written(
    edl: Edl, tmp_path: Path, small_disk: Path, digit_data: Path
) -> None:
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "mine.py").write_text(GOOD.replace("Dense(10)", "Dense(4000)"))
    data, output = digit_data / "train", small_disk / "model-out"
    trained = attempt(edl, tmp_path, data, model_def="mine", zoo=zoo)
    assert trained.code == 0, str(trained)
    model = ("--trained-model", str(tmp_path / "model"), "--data", str(data))
    done = edl.run("predict", *model, "--output", str(output), "-o", "json")
    check_refusal(done, RESOURCE, str(small_disk), "space")
    assert (done.json["state"], done.json["error"]["code"]) == ("FAILED", "DISK_FULL")
