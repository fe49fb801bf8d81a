"""``edl tune``: each trial's counts are exact, whatever is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from conftest import Edl, HeldTraining, eventually
from counting import check, records_trained

TOTAL, EPOCHS = 60, 2

MODEL = f"""
import keras
from counting import eval_metrics_fn, loss, model
from held import dataset_fn


def build_model(hp):
    built = model(size={TOTAL})
    built.compile(keras.optimizers.SGD(hp.Choice("rate", [1.0, 2.0])))
    return built
"""


def is_training(edl: Edl, name: str) -> bool:
    return records_trained(edl, name) > 0


def test_a_study_under_kills_counts_each_record_of_each_trial_once(
    edl: Edl, tmp_path: Path, numbered: Callable[..., Path], held: HeldTraining
) -> None:
    """The command and a worker of each trial are killed; the same command goes on."""
    (held.zoo / "searched.py").write_text(MODEL)
    edl.env["EDL_TEST_RECORD_S"] = "0.5"  # the first trial trains still when the second one does
    data, output = numbered(TOTAL), tmp_path / "best"
    command = (
        *("tune", "--name", "s", "--model-zoo", str(held.zoo), "--model-def"),
        *("searched.build_model", "--data", str(data), "--validation-data", str(data)),
        *("--output", str(output), "--objective", "val_mean_count", "--direction", "max"),
        *("--sampler", "grid", "--parallel", "2", "--num-epochs", str(EPOCHS)),
        *("--strategy", "parameter-server", "--minibatch-size", "4", "--records-per-task", "8"),
    )
    first = edl.start(*command)
    trials = ("s-0000", "s-0001")
    for name in trials:
        eventually(partial(is_training, edl, name), f"{name} trains")
    first.kill()
    first.wait()
    for name in trials:
        (worker,) = edl.workers(name).values()
        os.kill(worker, signal.SIGKILL)
    held.release()

    again = edl.run(*command[:-2], "--records-per-task", "9")
    assert again.code == 5
    assert "another records_per_task\n" in again.err, again
    result = edl(*command, "-o", "json").json
    assert [trial["job"] for trial in result["trials"]] == list(trials)
    for trial in result["trials"]:
        assert trial["state"] == "complete"
        assert trial["records_trained"] == EPOCHS * TOTAL
        rate = trial["values"]["rate"]
        assert trial["reported"] == [rate, EPOCHS * rate]
        place = edl.home / "studies" / "s" / "models" / f"{trial['trial']:04}"
        check(place, TOTAL, EPOCHS * rate)
    assert result["best"]["values"] == {"rate": 2.0}
    check(output, TOTAL, EPOCHS * 2)
    assert sorted(edl("list", "-o", "name").out.split()) == list(trials)
