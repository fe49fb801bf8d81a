"""The files of a stream are discovered once, in an order that outlives the master."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import recordio
from edl_master.adapters import split_log, stream_source
from edl_master.adapters.split_log import SplitLog
from edl_master.adapters.stream_source import StreamSource, open_stream
from edl_master.core.effects import Range
from edl_master.core.windows import Split
from edl_proto.errors import EdlError, ErrorCode


class Folder:
    """A folder in which files arrive, and the log of a job that reads it."""

    def __init__(self, place: Path) -> None:
        self.data = place / "data"
        self.data.mkdir()
        self.log = place / "splits.jsonl"

    def add(self, name: str, *records: str) -> str:
        hidden = self.data / f".{name}"
        with recordio.Writer(str(hidden)) as writer:
            for record in records:
                writer.write(record.encode())
        os.rename(hidden, self.data / name)
        return str(self.data / name)

    def add_table(self, name: str, *lines: str) -> str:
        (self.data / f".{name}").write_text("".join(f"{line}\n" for line in lines))
        os.rename(self.data / f".{name}", self.data / name)
        return str(self.data / name)

    def open(self) -> StreamSource:
        """Open the stream as a new master does."""
        return open_stream([str(self.data)], "", SplitLog(self.log))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def fail(error: pytest.ExceptionInfo[EdlError]) -> tuple[ErrorCode.ValueType, str]:
    assert error.value.remedy
    return error.value.code, error.value.what


def test_the_first_records_are_kept(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_source, "_SAMPLE_BYTES", 10)
    folder.add("a.recordio")
    os.remove(folder.add("removed.recordio", "0"))
    first = folder.add("b.recordio", "12345", "67890", "1")
    folder.open().discover()
    os.remove(first)
    stream = folder.open()
    folder.add("c.recordio", "2")
    stream.discover()
    assert folder.open().sample == stream.sample == (b"12345", b"67890")


def test_new_files_are_discovered_once_and_keep_their_numbers(folder: Folder) -> None:
    second = folder.add("b.recordio", "3", "4")
    stream = folder.open()
    assert stream.discover() == ((Split(0, second, 2),), [])
    assert stream.discover() == ((), [])
    first = folder.add("a.recordio", "1")  # sorts before the one that is known
    third = folder.add("c.recordio")
    assert stream.discover()[0] == (Split(1, first, 1), Split(2, third, 0))
    assert list(stream.names) == [second, first, third]
    (located,) = stream.locate([Range(1, 0, 1)])
    assert (located.uri, located.start, located.stop) == (first, 0, 1)


def test_a_later_master_finds_the_same_files_at_the_same_numbers(folder: Folder) -> None:
    names = [folder.add(name, *"123") for name in ("a.recordio", "b.recordio")]
    folder.open().discover()
    newer = folder.add("0.recordio", "4")
    os.remove(names[0])  # its records have trained
    stream = folder.open()
    assert stream.reopen(1, 2) == (Split(1, names[1], 3),)
    assert stream.discover()[0] == (Split(2, newer, 1),)
    assert list(stream.names) == [*names, newer], "dead letters name files that are gone"
    (located,) = stream.locate([Range(1, 1, 3)])
    assert located.uri == names[1]


def test_a_file_that_went_before_its_records_trained_is_an_error(folder: Folder) -> None:
    name = folder.add("a.recordio", "1")
    folder.open().discover()
    os.remove(name)
    with pytest.raises(EdlError) as error:
        folder.open().reopen(0, 1)
    assert fail(error) == (
        ErrorCode.DATA_NOT_FOUND,
        f"the data of the stream has changed: {name} is not there any more",
    )


def test_a_file_that_changed_before_its_records_trained_is_an_error(folder: Folder) -> None:
    name = folder.add("a.recordio", "1")
    folder.open().discover()
    folder.add("a.recordio", "2")
    with pytest.raises(EdlError) as error:
        folder.open().reopen(0, 1)
    what = f"the data of the stream has changed: {name} has changed since the job discovered it"
    assert fail(error) == (ErrorCode.DATA_DAMAGED, what)


@pytest.mark.parametrize("kept", [1, 0.5, 0.01])
def test_a_line_that_was_not_written_to_its_end_does_not_count(folder: Folder, kept: float) -> None:
    """The power failed: the file is discovered again, with the number that it would have had."""
    first = folder.add("a.recordio", "1")
    folder.open().discover()
    whole = folder.log.stat().st_size
    second = folder.add("b.recordio", "2")
    folder.open().discover()
    added = folder.log.stat().st_size - whole
    os.truncate(folder.log, whole + int(added * kept) - (kept == 1))
    stream = folder.open()
    assert stream.reopen(0, 1) == (Split(0, first, 1),)
    assert stream.discover()[0] == (Split(1, second, 1),)


def test_a_full_disk_leaves_no_half_line_in_the_log(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = folder.add("a.recordio", "1")
    stream = folder.open()
    stream.discover()
    second = folder.add("b.recordio", "2")

    def fail_to_flush(path: Path) -> None:
        os.truncate(path, path.stat().st_size - 5)  # what did fit on the disk
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(split_log, "flush", fail_to_flush)
        with pytest.raises(OSError, match="No space left"):
            stream.discover()
    assert stream.discover()[0] == (Split(1, second, 1),)
    assert folder.open().reopen(0, 2) == (Split(0, first, 1), Split(1, second, 1))


def test_what_the_first_files_differ_in_is_reported(folder: Folder) -> None:
    folder.add_table("a.csv", "x,label", "1,0")
    folder.add_table("b.csv", "x,label,more", "1,0,2")
    (note,) = folder.open().compare(None).notes
    assert "b.csv" in note.message
    assert "'more'" in note.message


def test_a_place_that_cannot_be_listed_is_an_error_of_the_data(tmp_path: Path) -> None:
    stream = open_stream(["nowhere://bucket/in"], "", SplitLog(tmp_path / "splits.jsonl"))
    with pytest.raises(EdlError) as error:
        stream.compare(None)
    assert error.value.code is ErrorCode.DATA_UNREADABLE


def test_a_lost_order_is_an_error_and_not_another_order(folder: Folder) -> None:
    """A snapshot was kept, and the job's directory was not."""
    folder.add("a.recordio", "1")
    with pytest.raises(EdlError) as error:
        folder.open().reopen(2, 3)
    what = "the order of the stream's data is lost: 0 of 3 splits are known"
    assert fail(error) == (ErrorCode.CHECKPOINT_DAMAGED, what)


def test_a_stream_begins_with_a_file(folder: Folder) -> None:
    with pytest.raises(EdlError) as error:
        folder.open().compare(None)
    assert fail(error) == (ErrorCode.DATA_NOT_FOUND, "the stream has no records yet")


def test_the_first_file_says_which_columns_all_have(folder: Folder) -> None:
    folder.add_table("a.csv", "x,label", "1,0")
    assert folder.open().compare(None).columns == ("x", "label")
    os.remove(folder.data / "a.csv")
    stream = folder.open()  # no file is left that could say it
    assert stream.compare(None).columns == ("x", "label")
    folder.add_table("b.csv", "label,x,more", "1,0,2")
    splits, notes = stream.discover()
    assert [split.number for split in splits] == [1]
    assert "'more' is not in the first file of the stream, and is ignored" in notes[0].message
    folder.add_table("c.csv", "x,answer", "1,0")
    with pytest.raises(EdlError) as error:
        stream.discover()
    code, what = fail(error)
    assert code is ErrorCode.SHAPE_MISMATCH
    assert "c.csv: it lacks column 'label' of the first file of the stream" in what


def test_a_damaged_file_is_named_and_not_discovered(folder: Folder) -> None:
    folder.add("a.recordio", "1")
    stream = folder.open()
    stream.discover()
    (folder.data / "b.recordio").write_bytes(b"no records at all")
    with pytest.raises(EdlError, match=r"b\.recordio"):
        stream.discover()
    (folder.data / "b.recordio").unlink()
    assert stream.discover() == ((), [])


def test_a_file_that_is_written_again_is_reported_once(folder: Folder) -> None:
    name = folder.add("a.recordio", "1")
    folder.add("b.recordio", "1")
    folder.open().discover()
    folder.add("a.recordio", "2", "3")
    stream = folder.open()
    splits, (note,) = stream.discover()
    assert splits == ()
    assert note.message == f"{name} was written again. Its name is known, so it is not read again."
    assert stream.discover() == ((), [])


def test_forgotten_files_are_not_kept(folder: Folder) -> None:
    for name in ("a.recordio", "b.recordio"):
        folder.add(name, "1")
    stream = folder.open()
    stream.discover()
    stream.forget(1)
    assert len(stream.locate([Range(1, 0, 1)])) == 1
    with pytest.raises(KeyError):
        stream.locate([Range(0, 0, 1)])
