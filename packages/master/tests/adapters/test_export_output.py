"""The model that a worker has written becomes the output: once, whole, and only by the master."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from edl_master.adapters import job_output, object_stores
from edl_master.adapters.export_output import ExportOutput
from edl_master.core.identifiers import HeldLease, TaskType, Token
from edl_master.core.tasks import TaskKey
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import model_pb2
from edl_runtime.local import output_reservation

DESCRIPTION = "trained_model.pb"


def lease(token: int) -> HeldLease:
    return HeldLease(TaskKey(TaskType.EXPORT, 0, 0), Token(token))


@pytest.fixture(params=["directory", "store"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The output of a job; it is not there yet."""
    if request.param == "directory":
        yield str(tmp_path / "m")
        return
    empty_memory()
    yield "memory://bucket/m"
    empty_memory()


def empty_memory() -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


class CheckpointStorage:
    """What is at a path or a URI, whichever it is."""

    def __init__(self, uri: str) -> None:
        self.system, self.path = fsspec.core.url_to_fs(uri)

    def write(self, job: str, content: bytes = b"values") -> None:
        self.system.makedirs(f"{self.path}/saved_model", exist_ok=True)
        self.system.pipe_file(f"{self.path}/parameters.safetensors", content)
        self.system.pipe_file(f"{self.path}/saved_model/saved_model.pb", b"graph")
        described = model_pb2.TrainedModel(job=job).SerializeToString()
        self.system.pipe_file(f"{self.path}/{DESCRIPTION}", described)

    def read(self) -> dict[str, bytes]:
        """The files below, by name."""
        return {
            each.removeprefix(self.path): self.system.cat_file(each)
            for each in self.system.find(self.path)
        }

    @property
    def is_there(self) -> bool:
        return bool(self.system.exists(self.path))

    def beside(self) -> list[str]:
        """Whatever else is in the folder."""
        parent = self.path.rpartition("/")[0]
        return [path for path in self.system.find(parent) if not path.startswith(f"{self.path}/")]


def write_part(
    exports: ExportOutput, token: int, content: bytes = b"values", job: str = "j"
) -> None:
    CheckpointStorage(exports.part_of(lease(token))).write(job, content)


def complete(exports: ExportOutput, token: int) -> None:
    with exports.completing(lease(token), 0):
        pass


def test_the_model_of_the_task_that_was_completed_becomes_the_output(where: str) -> None:
    exports = ExportOutput(where, "j", "ab12")
    write_part(exports, 7, b"seven")
    write_part(exports, 8, b"eight")
    complete(exports, 7)
    assert not CheckpointStorage(where).is_there, "nothing is there before the job says so"
    exports.finish()
    there = CheckpointStorage(where).read()
    assert there["/parameters.safetensors"] == b"seven"
    assert sorted(there) == [
        "/parameters.safetensors",
        "/saved_model/saved_model.pb",
        f"/{DESCRIPTION}",
    ]
    exports.clear(succeeded=True)
    assert CheckpointStorage(where).beside() == []
    assert CheckpointStorage(where).read() == there


def test_a_worker_that_was_given_up_harms_nothing_whenever_it_goes_on(where: str) -> None:
    exports = ExportOutput(where, "j", "ab12")
    late = CheckpointStorage(exports.part_of(lease(7)))
    late.write("j", b"half")
    write_part(exports, 8)
    complete(exports, 8)
    late.write("j", b"more")
    exports.finish()
    whole = CheckpointStorage(where).read()
    late.write("j", b"all of it")
    assert CheckpointStorage(where).read() == whole
    assert whole["/parameters.safetensors"] == b"values"


def test_a_completion_that_is_refused_does_not_count(where: str) -> None:
    exports = ExportOutput(where, "j", "ab12")
    write_part(exports, 7, b"current")
    write_part(exports, 6, b"stale")
    complete(exports, 7)
    with pytest.raises(EdlError), exports.completing(lease(6), 0):
        raise EdlError(ErrorCode.STALE_LEASE, "not current")
    exports.finish()
    assert CheckpointStorage(where).read()["/parameters.safetensors"] == b"current"


def test_no_two_holders_write_to_one_place_not_even_of_two_masters(where: str) -> None:
    first, second = ExportOutput(where, "j", "ab12"), ExportOutput(where, "j", "cd34")
    places = [each.part_of(lease(token)) for each in (first, second) for token in (1, 2)]
    assert len(set(places)) == 4


def test_the_output_of_an_earlier_master_of_the_job_is_replaced(where: str) -> None:
    first = ExportOutput(where, "j", "ab12")
    write_part(first, 7, b"undone")
    complete(first, 7)
    first.finish()  # and it dies before it can say so
    job_output.check_output(where, resumed_job="j")
    second = ExportOutput(where, "j", "cd34")
    write_part(second, 7, b"redone")
    complete(second, 7)
    second.finish()
    assert CheckpointStorage(where).read()["/parameters.safetensors"] == b"redone"
    second.clear(succeeded=True)
    assert CheckpointStorage(where).beside() == []


@pytest.mark.parametrize("whose", ["another job", "unowned"])
def test_what_is_not_the_job_s_own_is_left_alone(where: str, whose: str) -> None:
    if whose == "another job":
        CheckpointStorage(where).write("other", b"precious")
    else:
        place = CheckpointStorage(where)
        place.system.makedirs(place.path, exist_ok=True)
        place.system.pipe_file(f"{place.path}/mine.txt", b"precious")
    before = CheckpointStorage(where).read()
    exports = ExportOutput(where, "j", "ab12")
    write_part(exports, 7)
    complete(exports, 7)
    with pytest.raises(EdlError) as caught:
        exports.finish()
    assert caught.value.code == ErrorCode.OUTPUT_EXISTS
    assert "appeared while the job ran" in str(caught.value)
    assert where.rpartition("/")[2] in caught.value.where
    assert CheckpointStorage(where).read() == before
    exports.clear(succeeded=False)
    assert CheckpointStorage(where).beside() == []


@pytest.mark.parametrize("what", ["nothing", "no description"])
def test_a_model_that_is_not_whole_is_never_the_output(where: str, what: str) -> None:
    exports = ExportOutput(where, "j", "ab12")
    if what == "no description":
        write_part(exports, 7)
        place = CheckpointStorage(exports.part_of(lease(7)))
        place.system.rm_file(f"{place.path}/{DESCRIPTION}")
    complete(exports, 7)
    with pytest.raises(EdlError) as caught:
        exports.finish()
    assert caught.value.code == ErrorCode.INTERNAL
    assert not CheckpointStorage(where).is_there


@pytest.mark.parametrize("killed", ["after the note", "half-way", "before the description"])
def test_a_master_that_is_killed_while_it_moves_objects_has_a_successor_that_does_it_again(
    monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    where = "memory://bucket/m"
    memory = fsspec.filesystem("memory")
    empty_memory()
    first = ExportOutput(where, "j", "ab12")
    write_part(first, 7, b"first")
    complete(first, 7)
    copy = type(memory).copy

    def copies(system: Any, source: str, to: str, **options: Any) -> None:
        if killed == "half-way":
            some = system.find(source)[0]
            system.cp_file(some, some.replace(source.rstrip("/"), to))
        elif killed == "before the description":
            copy(system, source, to, **options)
        raise OSError("as if killed")

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "copy", copies)
        with pytest.raises(EdlError):
            first.finish()
    assert object_stores.writer_of(where) == "j"
    job_output.check_output(where, resumed_job="j")
    second = ExportOutput(where, "j", "cd34")
    write_part(second, 7, b"second")
    complete(second, 7)
    second.finish()
    second.clear(succeeded=True)
    assert CheckpointStorage(where).read()["/parameters.safetensors"] == b"second"
    assert f"/{DESCRIPTION}" in CheckpointStorage(where).read()
    assert CheckpointStorage(where).beside() == []
    empty_memory()


@pytest.mark.parametrize("name", ["m[1]", "m*", "m?"])
def test_an_output_in_a_store_that_reads_like_a_pattern_is_refused(name: str) -> None:
    with pytest.raises(EdlError) as caught:
        job_output.check_output(f"memory://bucket/{name}")
    assert caught.value.code == ErrorCode.USAGE


def test_names_of_outputs_are_taken_literally(tmp_path: Path) -> None:
    """What is removed at the end is found by a pattern; a name may look like one."""
    other = tmp_path / ".m1.edl-j.ab12-1.tmp"
    other.mkdir()
    exports = ExportOutput(str(tmp_path / "m[1]"), "j", "ab12")
    write_part(exports, 1)
    complete(exports, 1)
    exports.finish()
    exports.clear(succeeded=True)
    assert other.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m1.edl-j.ab12-1.tmp", "m[1]"]


def test_an_output_of_the_longest_name_can_be_written(tmp_path: Path) -> None:
    output = str(tmp_path / ("m" * output_reservation.MAX_NAME_BYTES))
    writing = ExportOutput(output, "j" * 53, f"{2**31}-{2**31}").part_of(lease(10**9))
    Path(writing).mkdir()
