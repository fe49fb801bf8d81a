"""Files of values, trained models by URI, predictions as records, exports to an object store."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import keras
import numpy as np
import pytest
import reference
import tensorflow as tf
from keras_jobs import load
from safetensors.numpy import save_file

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2, model_pb2
from edl_worker.codec.jobs import decode_job
from edl_worker.core.job import ModelReference
from edl_worker.core.model_description import TrainedModelDescription
from edl_worker.core.tasks import ExportInfo
from edl_worker.engines.tensorflow import warm_start, weights
from edl_worker.tasks import task_errors
from edl_worker.tasks.export import Exporter
from edl_worker.tasks.prediction import named_outputs, rows
from edl_worker.trained_model import directory as trained_model
from edl_worker.trained_model import weight_files


def small_model() -> keras.Model:
    keras.backend.clear_session(free_memory=False)
    return keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2), keras.layers.BatchNormalization()]
    )


def test_values_come_back_from_their_file_in_the_order_of_the_model(tmp_path: Path) -> None:
    stored = weights.of_model(small_model())
    weight_files.save(stored, tmp_path / "v.safetensors")
    read = weight_files.read(tmp_path / "v.safetensors")
    assert list(read.arrays) == list(stored)
    for name, value in stored.items():
        np.testing.assert_array_equal(read.arrays[name], value)
        assert read.arrays[name].dtype == value.dtype


def test_values_are_copies_that_later_training_does_not_touch() -> None:
    model = small_model()
    stored = weights.of_model(model)
    before = {name: value.copy() for name, value in stored.items()}
    for weight in model.weights:
        weight.assign(weight + 1.0)
    for name in stored:
        np.testing.assert_array_equal(stored[name], before[name])


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_file_of_values_is_reported(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    weight_files.save(weights.of_model(small_model()), path)
    content = bytearray(path.read_bytes())
    match damage:
        case "cut":
            content = content[:-10]
        case "flip":
            content[9] ^= 0xFF
        case "empty":
            content.clear()
    path.write_bytes(content)
    with pytest.raises(EdlError) as caught:
        weight_files.read(path)
    assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED
    assert str(path) in caught.value.where


def test_a_value_of_another_shape_is_refused_with_both_shapes() -> None:
    model = small_model()
    stored = weights.of_model(model)
    name = next(iter(stored))
    stored[name] = stored[name][:, :1]
    with pytest.raises(EdlError, match=r"\(3, 2\).*\(3, 1\)"):
        weights.assign(model, weight_files.NamedValues(stored, "f"))


@pytest.mark.parametrize(
    ("outputs", "names", "wanted"),
    [
        (np.zeros((2, 3)), [], {"prediction": (2, 3)}),
        ([np.zeros((2, 3))], ["logits"], {"prediction": (2, 3)}),
        ({"a": np.zeros((2, 1)), "b": np.zeros(2)}, [], {"a": (2, 1), "b": (2,)}),
        ([np.zeros(2), np.ones(2)], ["x", "y"], {"x": (2,), "y": (2,)}),
        ((np.zeros(2), np.ones(2)), [], {"prediction_0": (2,), "prediction_1": (2,)}),
    ],
)
def test_outputs_have_names(outputs: Any, names: list[str], wanted: dict[str, Any]) -> None:
    assert {name: value.shape for name, value in named_outputs(outputs, names).items()} == wanted


def test_rows_of_outputs_are_flat_and_in_order() -> None:
    values_ = np.arange(12.0).reshape(2, 3, 2)
    first, second = rows({"prediction": tf.constant(values_), "n": np.array([7, 8])}, 2)
    assert first["prediction"].tolist() == [0, 1, 2, 3, 4, 5]
    assert second["prediction"].tolist() == [6, 7, 8, 9, 10, 11]
    assert second["n"].tolist() == [8]


@pytest.mark.parametrize("value", [np.zeros((3, 1)), np.float32(1.0)])
def test_an_output_without_a_row_per_record_is_an_error(value: Any) -> None:
    with pytest.raises(EdlError) as caught:
        list(rows({"prediction": value}, 2))
    assert caught.value.code == ErrorCode.SHAPE_MISMATCH
    assert "minibatch of 2" in caught.value.what


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ErrorCode.DISK_FULL),
        (tf.errors.ResourceExhaustedError(None, None, "x; No space left"), ErrorCode.DISK_FULL),
        (PermissionError(errno.EACCES, "Permission denied"), ErrorCode.OUTPUT_UNWRITABLE),
    ],
)
def test_why_an_output_cannot_be_written_is_reported(error: Exception, code: int) -> None:
    assert task_errors.is_about_writing(error)
    told = task_errors.write_error(error, "/out")
    assert told.code == code
    assert told.where == "/out"
    assert told.remedy


def test_shapes_are_written_as_people_write_them() -> None:
    nest = {"a": tf.zeros((2, 3)), "b": [np.zeros(4, np.int64), None]}
    assert task_errors.shapes(nest) == "{a: float32(2, 3), b: [int64(4), none]}"


# --- an object store ---------------------------------------------------------------------------


@pytest.fixture
def store() -> Any:
    """fsspec's own store in memory, empty."""
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    yield filesystem
    filesystem.store.clear()


def exporter(job: job_pb2.JobSpec) -> Exporter:
    loaded = load(decode_job(job), {"worker_id": 0})
    return loaded.exporter


def test_a_model_goes_to_an_object_store_and_comes_back(
    job: job_pb2.JobSpec, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    writer = exporter(job)
    writer.export(ExportInfo(parameter_version=3), "memory://bucket/models/m")
    back = trained_model.open_directory("memory://bucket/models/m")
    assert back.description.parameter_version == 3
    assert (back.path / "model_zoo" / "points.py").exists()
    reference.assert_close(
        dict(back.read_values().arrays), weights.of_model(writer.engine.source.model)
    )
    warm_start.initialize(writer.engine.source.model, "memory://bucket/models/m")
    assert list(temporary.glob("edl-*")) == [back.path.parent], "its code may be read at any time"
    trained_model._until_exit.close()  # as at the end of the process
    assert list(temporary.glob("edl-*")) == []


def test_a_model_without_the_form_in_which_workers_crashed(
    job: job_pb2.JobSpec, tmp_path: Path
) -> None:
    earlier, place = (tmp_path / f".out.edl-job.ab12-{token}.tmp" for token in (7, 8))
    earlier.mkdir()
    (earlier / ".writing").write_text(trained_model.SAVED_MODEL)
    (warning,) = exporter(job).export(ExportInfo(crashes=2), str(place))
    assert warning.startswith("The trained model has no saved_model: 2 workers ended")
    assert sorted(path.name for path in place.iterdir()) == [
        "layer_states.json",
        "model.keras",
        "model_zoo",
        "parameters.safetensors",
        "trained_model.pb",
    ]
    assert trained_model.open_directory(str(place)).description.saved_model == ""


def test_a_model_that_cannot_be_written_whole_is_not_left_in_a_store(
    job: job_pb2.JobSpec, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = type(store).put_file

    def fails_at_the_description(system: Any, local: str, path: str, **options: Any) -> None:
        if path.endswith(trained_model.DESCRIPTION):
            raise OSError(errno.EACCES, "no more")
        put(system, local, path, **options)

    monkeypatch.setattr(type(store), "put_file", fails_at_the_description)
    with pytest.raises(EdlError) as caught:
        exporter(job).export(ExportInfo(), "memory://bucket/m")
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE
    assert store.find("/bucket") == []


def test_no_object_of_a_stored_model_is_copied_out_of_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/bucket/hostile/a", b"1")
    # As a store may list it; this file system itself would resolve such a name.
    names = ["/bucket/hostile/a", "/bucket/hostile/x/../../../stolen"]
    monkeypatch.setattr(store, "find", lambda path: names)
    with pytest.raises(EdlError, match="names of its objects lead out of it") as caught:
        trained_model.open_directory("memory://bucket/hostile")
    assert caught.value.code == ErrorCode.SOURCE_UNREACHABLE


def test_a_trained_model_that_is_not_there_is_reported(store: Any, tmp_path: Path) -> None:
    for uri in ("memory://nothing/here", str(tmp_path / "no")):
        with pytest.raises(EdlError) as caught:
            trained_model.open_directory(uri)
        assert caught.value.code == ErrorCode.MODEL_NOT_FOUND
        assert uri in caught.value.where


def test_a_damaged_description_is_reported(tmp_path: Path) -> None:
    (tmp_path / trained_model.DESCRIPTION).write_bytes(b"\xff\xff\xff")
    with pytest.raises(EdlError) as caught:
        trained_model.open_directory(str(tmp_path))
    assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED


def test_a_jobs_own_options_precede_those_of_the_trained_model(tmp_path: Path) -> None:
    description = TrainedModelDescription(
        model_def="a.B", dataset_fn="a.f", model_def_params="width=3"
    )
    directory = trained_model.TrainedModelDirectory(tmp_path, description)
    spec = directory.model_reference(ModelReference("", "", dataset_fn="c.g"))
    assert (spec.model_def, spec.dataset_fn, spec.params) == ("a.B", "c.g", "width=3")
    assert spec.model_zoo == str(tmp_path / "model_zoo")


def test_a_zoo_that_holds_the_output_is_copied_without_it(
    job: job_pb2.JobSpec, tmp_path: Path
) -> None:
    zoo = tmp_path / "work"
    (zoo / ".git").mkdir(parents=True)
    (zoo / "__pycache__").mkdir()
    (zoo / "points.py").write_text((Path(job.model.model_zoo) / "points.py").read_text())
    (zoo / "part").mkdir()
    (zoo / "part" / "notes.txt").write_text("no code names it")
    job.model.model_zoo = str(zoo)
    job.output = str(zoo / "out")
    (zoo / "out").mkdir()
    (zoo / ".out.edl-job.ab12-7.tmp").mkdir()  # of a holder of the task that was lost
    place = zoo / ".out.edl-job.ab12-8.tmp"
    exporter(job).export(ExportInfo(), str(place))
    copied = sorted(p.name for p in (place / "model_zoo").iterdir())
    assert copied == ["points.py"]
    assert (zoo / ".out.edl-job.ab12-7.tmp").exists(), "it may still be at work there"


@pytest.mark.parametrize(
    "order", ["[" * 200_000, "5", '{"a": 1}', "[1, 2]", '["no such name"]', '"text"']
)
def test_an_order_of_values_that_is_none_is_reported(order: str, tmp_path: Path) -> None:
    """A file of values may have any text there."""
    path = tmp_path / "v.safetensors"
    save_file({"a": np.zeros(2, np.float32)}, path, metadata={"order": order})
    with pytest.raises(EdlError) as caught:
        weight_files.read(path)
    assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED


def write_model(place: Path, **fields: str) -> Path:
    """Write a folder with a description and values."""
    place.mkdir()
    weight_files.save({"a": np.zeros(2, np.float32)}, place / "parameters.safetensors")
    message = model_pb2.TrainedModel(model_def="m", **fields)
    (place / "trained_model.pb").write_bytes(message.SerializeToString())
    return place


@pytest.mark.parametrize("name", ["/other/v.safetensors", "../other/v.safetensors", ".."])
def test_a_description_names_only_values_of_the_model(name: str, tmp_path: Path) -> None:
    write_model(tmp_path / "other")
    with pytest.raises(EdlError, match="leads out of it"):
        trained_model.open_directory(str(write_model(tmp_path / "m", params_filename=name)))


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_values_of_a_model_are_its_own(kind: str, tmp_path: Path) -> None:
    """A pipe would be waited for, until the worker is killed, again and again."""
    other = write_model(tmp_path / "other") / "parameters.safetensors"
    values = write_model(tmp_path / "m") / "parameters.safetensors"
    assert list(trained_model.open_directory(str(tmp_path / "m")).read_values().arrays) == ["a"]
    values.unlink()
    if kind == "link":
        values.symlink_to(other)
    else:
        os.mkfifo(values)
    with pytest.raises(EdlError) as caught:
        trained_model.open_directory(str(tmp_path / "m")).read_values()
    assert caught.value.code == ErrorCode.FORBIDDEN


@pytest.mark.parametrize("kind", ["pipe", "huge"])
def test_a_description_of_another_kind_is_reported(kind: str, tmp_path: Path) -> None:
    place = write_model(tmp_path / "m")
    if kind == "huge":
        os.truncate(place / "trained_model.pb", 1 << 40)
    else:
        (place / "trained_model.pb").unlink()
        os.mkfifo(place / "trained_model.pb")
    with pytest.raises(EdlError) as caught:
        trained_model.open_directory(str(place))
    assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED
