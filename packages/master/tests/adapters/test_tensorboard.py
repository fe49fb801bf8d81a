"""Event files that TensorBoard can read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

import recordio
from edl_master.adapters.tensorboard import TensorBoard
from edl_proto.errors import EdlError, ErrorCode


def read_back(directory: Path) -> list[Event]:
    """Everything in the directory's event files, which are TFRecord files."""
    found = []
    for path in sorted(directory.glob("events.out.tfevents.*")):
        source = recordio.open_source(str(path), format="tfrecord")
        found += [Event.FromString(record) for record in source.read(0, source.count())]
    return found


def test_points_come_back_as_they_were_added(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "board")
    points = [("loss", step, 1.0 / (1 + step), 1000.0 + step) for step in range(20)]
    points.append(("accuracy", 19, 0.5, 1019.0))
    for name, step, value, at_s in points:
        board.add(name, step, value, at_s)
    board.close()
    header, *events = read_back(tmp_path / "board")
    assert header.file_version == "brain.Event:2"
    found = [(event.summary.value[0].tag, event.step, event.wall_time) for event in events]
    assert found == [(name, step, at_s) for name, step, _, at_s in points]
    values = [event.summary.value[0].simple_value for event in events]
    assert values == pytest.approx([value for *_, value, _ in points])


def test_what_was_flushed_can_be_read_while_the_job_runs(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.add("loss", 1, 0.25)
    board.flush()
    assert [event.step for event in read_back(tmp_path)] == [0, 1]
    board.close()


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EdlError) as caught:
        TensorBoard(tmp_path / "file")
    assert caught.value.code == ErrorCode.OUTPUT_UNWRITABLE
