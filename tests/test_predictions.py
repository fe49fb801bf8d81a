"""A trained model's directory is all that evaluate and predict need, also elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from conftest import ROOT, Edl, MakeEdl, read_all, readme_blocks

import recordio
import recordio.example


@pytest.fixture(scope="module")
def moved_model(
    tmp_path_factory: pytest.TempPathFactory, digit_data: Path, make_edl: MakeEdl
) -> Path:
    """A model trained from a zoo that is gone, carried to another place."""
    place = tmp_path_factory.mktemp("trained")
    shutil.copytree(ROOT / "model_zoo", place / "zoo")
    edl = make_edl(place / "edl-home")
    edl(
        *("train", "--model-zoo", str(place / "zoo"), "--model-def", "mnist.mnist_subclass"),
        *("--data", f"{digit_data}/train/*.recordio", "--num-epochs", "3"),
        *("--output", str(place / "model"), "--name", "digits", "-q"),
    )
    edl("delete", "digits", "--yes")  # which waits for the end of its processes
    shutil.rmtree(place / "zoo")
    shutil.rmtree(place / "edl-home")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "carried"
    shutil.move(place / "model", elsewhere)
    return elsewhere


def test_one_prediction_per_record_in_order(
    edl: Edl, tmp_path: Path, digit_data: Path, moved_model: Path
) -> None:
    done = edl(
        *("predict", "--data", f"{digit_data}/test/*.recordio", "--trained-model"),
        *(str(moved_model), "--output", str(tmp_path / "out"), "--num-workers", "2"),
        *("--records-per-task", "7", "-o", "json"),
        cwd=tmp_path,
    )
    assert done.json["state"] == "SUCCEEDED"
    inputs = [recordio.example.decode(r) for r in read_all(digit_data / "test")]
    outputs = [recordio.example.decode(r)["prediction"] for r in read_all(tmp_path / "out")]
    assert len(outputs) == len(inputs) == 80

    import tensorflow as tf

    served = tf.saved_model.load(str(moved_model / "saved_model"))
    signature = served.signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    images = np.stack([example["image"] for example in inputs]).reshape(-1, 28, 28) / 255
    (expected,) = signature(**{name: tf.constant(images, tf.float32)}).values()
    np.testing.assert_allclose(np.stack(outputs), expected.numpy(), rtol=1e-3, atol=1e-4)


def test_the_readme_s_commands_with_the_demo_s_model(
    edl: Edl, tmp_path: Path, digit_data: Path, moved_model: Path
) -> None:
    """Word for word, in a folder that looks as after ``./dev demo``."""
    (script,) = (block for _, block in readme_blocks() if "build/demo/model" in block)
    demo = tmp_path / "build" / "demo"
    demo.mkdir(parents=True)
    (demo / "model").symlink_to(moved_model)
    (demo / "data").symlink_to(digit_data)
    done = edl.shell(script, cwd=tmp_path)
    assert "jsonl, 80 records" in done.out
    rows = [json.loads(line) for line in (tmp_path / "digits.jsonl").read_text().splitlines()]
    labels = [int(recordio.example.decode(r)["label"][0]) for r in read_all(digit_data / "test")]
    assert [row["label"] for row in rows] == labels
    assert {row["prediction"] for row in rows} <= set(range(10))


def test_models_and_predictions_by_uri(edl: Edl, tmp_path: Path, digit_data: Path) -> None:
    """The URI stands for an object store: fsspec's own files under a scheme of their own."""
    store = f"local://{tmp_path}/store"
    trained = edl(
        *("train", "--model-zoo", str(ROOT / "model_zoo"), "--model-def", "mnist.mnist_subclass"),
        *("--data", f"{digit_data}/train/*.recordio", "--output", f"{store}/model", "-o", "json"),
    ).json
    assert trained["output"] == f"{store}/model"
    predict = (
        *("predict", "--data", f"local://{digit_data}/test/*.recordio"),
        *("--trained-model", f"{store}/model", "--output", f"{store}/out", "-q"),
    )
    edl(*predict, "--save-page")
    assert len(read_all(tmp_path / "store" / "out")) == 80
    kept = ["model", "out", "out.html"]
    assert sorted(p.name for p in (tmp_path / "store").iterdir()) == kept
    again = edl.run(*predict)
    assert again.code == 5
    assert f"{store}/out" in again.err


def test_evaluation_equals_counting_by_hand(
    edl: Edl, tmp_path: Path, digit_data: Path, moved_model: Path
) -> None:
    evaluated = edl(
        *("evaluate", "--data", f"{digit_data}/test", "--trained-model", str(moved_model)),
        *("--num-workers", "2", "--records-per-task", "9", "-o", "json"),
    ).json
    edl(
        *("predict", "--data", f"{digit_data}/test", "--trained-model", str(moved_model)),
        *("--keep", "label", "--postprocess", "argmax", "--records-per-task", "11"),
        *("--output", str(tmp_path / "out.parquet"), "-q"),
    )
    labels = [int(recordio.example.decode(r)["label"][0]) for r in read_all(digit_data / "test")]
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["label"] == labels
    accuracy = np.mean(np.equal(labels, table["prediction"]))
    assert evaluated["metrics"]["accuracy"] == pytest.approx(accuracy)
