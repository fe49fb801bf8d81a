"""Predictions in an object store: parts, and the joined output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from prediction_parts import CUT, FORMAT, SIZES, URIS, complete, lease, predict, successor

import recordio
from edl_master.adapters import object_stores
from edl_master.adapters.job_output import check_output
from edl_master.adapters.part_files import OutputFormat
from edl_master.adapters.prediction_output import PredictionOutput
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import model_pb2


@pytest.fixture
def store() -> Iterator[Any]:
    """fsspec's own store in memory, empty."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


@pytest.mark.parametrize("output", ["memory://bucket/all.recordio", "memory://bucket/some"])
def test_predictions_go_to_a_store(tmp_path: Path, store: Any, output: str) -> None:
    form = OutputFormat(one_file=output.endswith(".recordio"))
    predictions = PredictionOutput(tmp_path / "parts", "job", output, URIS, CUT, "ab12", form)
    predictions.prepare()
    check_output(output)
    for number in range(CUT.count):
        complete(predictions, number)
    predictions.finish()
    found = {path: recordio.open_source(f"memory://{path}").count() for path in store.find("/")}
    if output.endswith(".recordio"):
        assert found == {"/bucket/all.recordio": sum(SIZES)}
    else:
        names = ("a.recordio", "b.csv.recordio", "c.tfrecord.recordio")
        wanted = [(f"/bucket/some/{name}", size) for name, size in zip(names, SIZES, strict=True)]
        assert found == dict(wanted)
    predictions.clear(succeeded=True)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(EdlError) as caught:
        check_output(output)
    assert caught.value.code == ErrorCode.OUTPUT_EXISTS
    assert caught.value.where == output


STAGING = "memory://bucket/.out.edl-job.parts"


def staged_output(tmp_path: Path, incarnation: str = "ab12") -> PredictionOutput:
    """The output of workers that do not see the master's files."""
    output = "memory://bucket/out"
    parts = tmp_path / "parts"
    return PredictionOutput(parts, "job", output, URIS, CUT, incarnation, FORMAT, STAGING)


def test_parts_in_a_store_are_fetched_as_they_are_taken(tmp_path: Path, store: Any) -> None:
    first = staged_output(tmp_path)
    first.prepare()
    for number in (3, 0, 4):
        complete(first, number)
    complete(first, 4)  # reported twice
    late = lease(1, token=7)
    length = predict(first, 1, token=7)
    with pytest.raises(LookupError), first.completing(late, length):
        raise LookupError("the job has given the task to another one")
    # The next master has the parts that were taken, wherever the workers are.
    next_ = staged_output(tmp_path, "cd34")
    assert next_.resume(lambda number: number in (0, 3, 4), dead=0)
    assert store.find("/bucket") == []
    for number in (1, 2):
        complete(next_, number)
    next_.finish()
    found = recordio.open_source("memory://bucket/out/a.recordio", format="recordio")
    assert list(found.read(0, 25)) == [b"0/%d by 1" % record for record in range(25)]
    next_.clear(succeeded=True)
    assert all(path.startswith("/bucket/out/") for path in store.find("/"))
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_a_store_does_not_give_is_not_taken(
    tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is the task done: the job is not asked."""
    predictions = staged_output(tmp_path)
    predictions.prepare()
    length = predict(predictions, 0)

    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(type(store), "get_file", fail)
    with pytest.raises(EdlError) as caught, predictions.completing(lease(0), length):
        raise AssertionError("the job is asked")
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE
    monkeypatch.undo()
    with predictions.completing(lease(0), length):
        pass
    assert predictions.resume(lambda number: number == 0, dead=0)


def test_an_output_that_appeared_in_a_store_meanwhile_is_not_overwritten(
    tmp_path: Path, store: Any
) -> None:
    predictions = PredictionOutput(
        tmp_path / "parts", "job", "memory://bucket/out", URIS, CUT, "ab12", FORMAT
    )
    predictions.prepare()
    for number in range(CUT.count):
        complete(predictions, number)
    store.pipe_file("/bucket/out/mine", b"another's")
    with pytest.raises(EdlError) as caught:
        predictions.finish()
    assert caught.value.code == ErrorCode.OUTPUT_EXISTS
    assert store.find("/") == ["/bucket/out/mine"]


def test_a_store_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    for output in ("odd://bucket/out", "local:///proc/no/such"):
        with pytest.raises(EdlError) as caught:
            check_output(output)
        assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE
        assert caught.value.where == output


def test_a_trained_model_in_a_store_is_no_obstacle_to_the_job_that_wrote_it(store: Any) -> None:
    """Its master was killed after the model was written there, or while it was."""
    output = "memory://bucket/m"
    written = model_pb2.TrainedModel(job="mine").SerializeToString()
    store.pipe_file("/bucket/m/trained_model.pb", written)
    check_output(output, resumed_job="mine")
    for other in ("", "another"):
        with pytest.raises(EdlError, match="exists"):
            check_output(output, resumed_job=other)
    store.rm("/bucket/m", recursive=True)
    store.pipe_file("/bucket/m/half", b"")
    with pytest.raises(EdlError, match="exists"):
        check_output(output, resumed_job="mine")
    store.pipe_file("/bucket/.m.edl-job", b"mine")
    check_output(output, resumed_job="mine")
    with pytest.raises(EdlError, match="exists"):
        check_output(output, resumed_job="another")


@pytest.mark.parametrize("killed", ["half-way", "before it could say so"])
@pytest.mark.parametrize("output", ["memory://bucket/all.recordio", "memory://bucket/some"])
def test_predictions_whose_writing_to_a_store_was_interrupted(
    tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch, output: str, killed: str
) -> None:
    class KilledError(BaseException):
        pass

    put = object_stores.put

    def puts(local: Path, uri: str, job: str) -> None:
        if killed == "half-way":
            store.pipe_file("/bucket/some/a.recordio" if "some" in uri else "/bucket/.x.tmp", b"")
        else:
            put(local, uri, job)
        raise KilledError

    predictions = PredictionOutput(tmp_path / "parts", "job", output, URIS, CUT, "ab12", FORMAT)
    predictions.prepare()
    for number in range(CUT.count):
        complete(predictions, number)
    with monkeypatch.context() as patch:
        patch.setattr(object_stores, "put", puts)
        with pytest.raises(KilledError):
            predictions.finish()
    next_ = successor(tmp_path, output)
    assert next_.is_begun
    assert not next_.is_joined
    assert next_.resume(lambda number: True, dead=0)
    next_.finish()
    assert next_.is_joined
    found = [path for path in store.find("/bucket") if not path.endswith(".x.tmp")]
    assert sum(recordio.open_source(f"memory://{path}").count() for path in found) == sum(SIZES)
    before = {path: store.modified(path) for path in found}
    last = successor(tmp_path, output)
    last.finish()
    assert {path: store.modified(path) for path in found} == before, "it is there: left as it is"
    last.prepare()
    assert not store.exists(output.removeprefix("memory:/"))
