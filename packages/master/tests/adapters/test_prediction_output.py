"""Where results go, and the joining of predictions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from prediction_parts import CUT, FORMAT, SIZES, URIS, complete, content, lease, predict, successor

from edl_master.adapters.job_output import check_output
from edl_master.adapters.part_files import OutputFormat, output_names
from edl_master.adapters.prediction_output import PredictionOutput
from edl_proto.errors import EdlError, ErrorCode


@pytest.fixture
def predictions(tmp_path: Path) -> PredictionOutput:
    made = PredictionOutput(
        tmp_path / "parts", "job", str(tmp_path / "out"), URIS, CUT, "ab12", FORMAT
    )
    made.prepare()
    return made


def test_parts_are_joined_in_the_order_of_the_data(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in (3, 0, 4, 2, 1):
        complete(predictions, number)
    predictions.finish()
    out = tmp_path / "out"
    names = ["a.recordio", "b.csv.recordio", "c.tfrecord.recordio"]
    assert sorted(path.name for path in out.iterdir()) == names
    for file, (name, size) in enumerate(zip(names, SIZES, strict=True)):
        assert content(out / name) == [b"%d/%d by 1" % (file, record) for record in range(size)]
    predictions.clear(succeeded=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["out", "out.recordio"])
def test_an_output_that_an_earlier_master_joined_stays(tmp_path: Path, name: str) -> None:
    """It died before it could say so; the job neither fails by its own result nor redoes it."""
    output = tmp_path / name
    predictions = PredictionOutput(
        tmp_path / "parts", "job", str(output), URIS, CUT, "ab12", FORMAT
    )
    predictions.prepare()
    assert not predictions.is_joined
    for number in range(CUT.count):
        complete(predictions, number)
    predictions.finish()
    before = output.stat()
    next_ = successor(tmp_path, str(output))
    assert next_.is_joined
    assert next_.resume(lambda number: True, dead=0)
    next_.finish()
    assert output.stat() == before
    next_.clear(succeeded=True)
    assert not next_.is_joined


def test_what_another_user_put_there_is_not_taken_for_the_job_s_own(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in range(CUT.count):
        complete(predictions, number)
    predictions.finish()
    (tmp_path / "out").rename(tmp_path / "elsewhere")  # so that its inode stays in use
    assert not successor(tmp_path).is_joined
    (tmp_path / "out").mkdir()
    next_ = successor(tmp_path)
    assert not next_.is_joined
    next_.prepare()
    assert (tmp_path / "out").exists()
    with pytest.raises(EdlError, match="exists"):
        check_output(str(tmp_path / "out"))


def test_a_master_that_restarts_removes_what_an_earlier_one_made(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in range(CUT.count):
        complete(predictions, number)
    predictions.finish()
    directory = (tmp_path / "parts").stat().st_ino
    successor(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]
    assert list((tmp_path / "parts").iterdir()) == []
    assert (tmp_path / "parts").stat().st_ino == directory, "it may be mounted somewhere"


def test_a_successor_keeps_the_parts_of_what_is_done_and_no_others(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in (0, 1, 3):
        complete(predictions, number)
    predict(predictions, 2)  # never said to be complete
    next_ = successor(tmp_path)
    # Of task 3 the snapshot knows nothing: it is done again.
    assert next_.resume(lambda number: number < 2, dead=0)
    names = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert names == ["0000000000.recordio", "0000000001.recordio"]
    for number in (2, 3, 4):
        assert next_.part_of(lease(number)) != predictions.part_of(lease(number))
        complete(next_, number, token=2)
    next_.finish()
    assert content(tmp_path / "out" / "a.recordio")[19:21] == [b"0/19 by 1", b"0/20 by 2"]


def test_a_successor_misses_the_part_of_what_is_done(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in (0, 1, 3):
        complete(predictions, number)
    assert not successor(tmp_path).resume(lambda number: number < 3, dead=0)
    assert successor(tmp_path).resume(lambda number: number < 3, dead=1)
    (tmp_path / "parts" / "0000000001.recordio").write_bytes(b"")
    assert not successor(tmp_path).resume(lambda number: number < 2, dead=0)


def test_an_output_that_ends_in_recordio_is_one_file(tmp_path: Path) -> None:
    predictions = PredictionOutput(
        tmp_path / "parts",
        "job",
        str(tmp_path / "all.recordio"),
        URIS,
        CUT,
        "ab12",
        OutputFormat(one_file=True),
    )
    predictions.prepare()
    for number in range(CUT.count):
        complete(predictions, number)
    predictions.finish()
    assert len(content(tmp_path / "all.recordio")) == sum(SIZES)


def test_a_part_counts_only_when_the_job_takes_it(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    """A holder whose lease was lost writes under its own token, and is refused."""
    for number in range(CUT.count):
        complete(predictions, number, token=2)
    with (
        pytest.raises(RuntimeError, match="refused"),
        predictions.completing(lease(0, 1), predict(predictions, 0, token=1)),
    ):
        raise RuntimeError("refused")
    predictions.finish()
    assert set(content(tmp_path / "out" / "a.recordio")) == {
        b"0/%d by 2" % record for record in range(25)
    }


def count_predictions(directory: Path) -> int:
    """Return the number of predictions in the files of an output."""
    return sum(len(content(path)) for path in directory.iterdir())


def test_a_completion_that_is_sent_twice_counts_once(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in range(CUT.count):
        complete(predictions, number)
        with predictions.completing(lease(number), 10):
            pass
    predictions.finish()
    assert count_predictions(tmp_path / "out") == sum(SIZES)


def test_a_part_that_is_missing_is_never_passed_over(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in (0, 1, 3, 4):
        complete(predictions, number)
    with pytest.raises(EdlError) as caught:
        predictions.finish()
    assert caught.value.code == ErrorCode.INTERNAL
    assert "1 are missing" in caught.value.what
    assert not (tmp_path / "out").exists()
    predictions.finish(dead=1)
    assert count_predictions(tmp_path / "out") == 32


def test_a_part_of_another_length_is_not_taken(predictions: PredictionOutput) -> None:
    for number in range(CUT.count - 1):
        complete(predictions, number)
    with predictions.completing(lease(4), predict(predictions, 4, count=1)):
        pass
    with pytest.raises(EdlError, match="1 are missing"):
        predictions.finish()


def test_a_part_that_holds_less_than_it_should_is_found(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in range(CUT.count):
        predict(predictions, number, count=1)
        records = CUT.range(number)
        with predictions.completing(lease(number), records.stop - records.start):
            pass
    with pytest.raises(EdlError, match="3 predictions for 25 records"):
        predictions.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts"]


@pytest.mark.parametrize("wait", [PredictionOutput.finish, PredictionOutput.flush])
def test_joining_and_keeping_wait_for_a_completion_that_is_under_way(
    predictions: PredictionOutput, tmp_path: Path, wait: Callable[[PredictionOutput], None]
) -> None:
    for number in range(1, CUT.count):
        complete(predictions, number)
    count = predict(predictions, 0)
    joining = threading.Thread(target=wait, args=(predictions,))
    with predictions.completing(lease(0), count):
        # The job has taken the last completion and asks for the output at once.
        joining.start()
        joining.join(0.1)
        assert joining.is_alive()
    joining.join(200)
    assert not joining.is_alive()
    assert (tmp_path / "parts" / "0000000000.recordio").exists()


def test_an_output_that_appeared_meanwhile_is_not_overwritten(
    predictions: PredictionOutput, tmp_path: Path
) -> None:
    for number in range(CUT.count):
        complete(predictions, number)
    (tmp_path / "out").mkdir()
    with pytest.raises(EdlError) as caught:
        predictions.finish()
    assert caught.value.code == ErrorCode.OUTPUT_EXISTS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "parts"]


def test_outputs_are_checked_before_any_work(tmp_path: Path) -> None:
    check_output(str(tmp_path / "a" / "b"))
    assert list((tmp_path / "a").iterdir()) == []
    (tmp_path / "there").write_text("")
    with pytest.raises(EdlError) as caught:
        check_output(str(tmp_path / "there"))
    assert caught.value.code == ErrorCode.OUTPUT_EXISTS
    with pytest.raises(EdlError) as caught:
        check_output(str(tmp_path / "there" / "below"))
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE


def test_files_of_one_name_keep_apart() -> None:
    assert output_names(["/a/x.recordio", "/b/y.csv"], "recordio") == [
        "x.recordio",
        "y.csv.recordio",
    ]
    assert output_names(["/a/x.recordio", "/b/x.recordio"], "recordio") == [
        "00000-x.recordio",
        "00001-x.recordio",
    ]
    assert output_names(["/a/x", "/a/x.recordio"], "recordio") == [
        "00000-x.recordio",
        "00001-x.recordio",
    ]
