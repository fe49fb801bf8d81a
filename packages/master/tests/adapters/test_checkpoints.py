"""Checkpoints: whole, or passed over."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edl_master.adapters.checkpoints import Checkpoint, Checkpoints
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2


def checkpoint(number: int) -> Checkpoint:
    return Checkpoint(
        {"ledger": {"position": number, "text": "äöü"}, "plane": {"version": number}},
        {
            "values/trainable/float32": np.arange(1000, dtype=np.float32) + number,
            "slots/m/float64": np.array([np.pi, np.inf]),
            "empty": np.empty(0, np.float32),
        },
    )


def kept(directory: Path, keep: int = 3, job: str = "job") -> Checkpoints:
    checkpoints = Checkpoints(directory, job, keep)
    checkpoints.prepare()
    return checkpoints


def newest(checkpoints: Checkpoints) -> tuple[Checkpoint | None, list[str]]:
    damaged: list[str] = []
    return checkpoints.newest(lambda name, problem: damaged.append(name)), damaged


def test_what_was_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoints = kept(tmp_path / "a" / "b")
    assert newest(checkpoints) == (None, [])
    name = checkpoints.write(checkpoint(7))
    found, damaged = newest(checkpoints)
    assert found is not None
    assert damaged == []
    assert found.name == name
    assert found.documents == checkpoint(7).documents
    assert found.arrays.keys() == checkpoint(7).arrays.keys()
    for key, array in checkpoint(7).arrays.items():
        assert found.arrays[key].dtype == array.dtype
        assert np.array_equal(found.arrays[key], array)


def test_the_last_ones_stay_and_those_of_other_jobs(tmp_path: Path) -> None:
    other = kept(tmp_path, job="job-other")
    other.write(checkpoint(1))
    checkpoints = kept(tmp_path, keep=2)
    for number in range(5):
        checkpoints.write(checkpoint(number))
    assert checkpoints.names() == ["job-00000004", "job-00000005"]
    assert other.names() == ["job-other-00000001"]
    found, _ = newest(checkpoints)
    assert found is not None
    assert found.documents["plane"] == {"version": 4}
    assert not list(tmp_path.glob(".*.tmp"))


def test_what_a_crash_left_half_written_is_no_checkpoint_and_is_removed(tmp_path: Path) -> None:
    checkpoints = kept(tmp_path)
    checkpoints.write(checkpoint(1))
    half = tmp_path / ".job-00000002.tmp"
    half.mkdir()
    (half / "array-0000.npy").write_bytes(b"torn")
    found, damaged = newest(checkpoints)
    assert found is not None
    assert damaged == []
    checkpoints.close()
    kept(tmp_path)
    assert not half.exists()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_found_and_the_one_before_is_used(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("checkpoints")
    checkpoints = kept(directory)
    checkpoints.write(checkpoint(1))
    name = checkpoints.write(checkpoint(2))
    path = data.draw(st.sampled_from(sorted((directory / name).iterdir())))
    content = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "longer", "missing"]))
    if kind == "flip":
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
    elif kind == "cut":
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    elif kind == "longer":
        path.write_bytes(content + b"x")
    else:
        path.unlink()
    found, damaged = newest(checkpoints)
    assert found is not None
    if damaged:
        assert damaged == [name]
        assert found.documents["plane"] == {"version": 1}
    else:
        # A change that means nothing, such as a blank in the manifest's JSON.
        assert path.name == "manifest.json"
        assert found.documents == checkpoint(2).documents
        assert np.array_equal(
            found.arrays["values/trainable/float32"], np.arange(1000, dtype=np.float32) + 2
        )


def test_when_all_are_damaged_training_does_not_begin_anew_in_silence(tmp_path: Path) -> None:
    checkpoints = kept(tmp_path)
    name = checkpoints.write(checkpoint(1))
    (tmp_path / name / "ledger.json").write_text("{}")
    with pytest.raises(EdlError) as caught:
        newest(checkpoints)
    assert caught.value.code == error_pb2.CHECKPOINT_DAMAGED
    assert "ledger.json" in caught.value.what


def test_a_second_master_of_the_job_is_fenced_off(tmp_path: Path) -> None:
    first = kept(tmp_path)
    kept(tmp_path, job="another")
    with pytest.raises(EdlError) as caught:
        kept(tmp_path)
    assert caught.value.code == error_pb2.JOB_EXISTS
    assert str(tmp_path) in caught.value.where
    first.write(checkpoint(1))
    first.close()
    kept(tmp_path).write(checkpoint(2))


def test_where_locks_do_not_reach_the_earlier_master_finds_its_number_changed(
    tmp_path: Path,
) -> None:
    first = kept(tmp_path)
    first.write(checkpoint(1))
    number = int((tmp_path / ".job.owner").read_text().split()[0])
    # As another machine would, whose lock this file system does not know.
    (tmp_path / ".job.owner").write_text(f"{number + 1} somebody")
    with pytest.raises(EdlError) as caught:
        first.write(checkpoint(2))
    assert caught.value.code == error_pb2.STALE_INCARNATION
    assert first.names() == ["job-00000001"]
    assert not list(tmp_path.glob(".*.tmp"))


def test_every_master_has_a_greater_number(tmp_path: Path) -> None:
    numbers = []
    for _ in range(3):
        checkpoints = kept(tmp_path)
        numbers.append(int((tmp_path / ".job.owner").read_text().split()[0]))
        checkpoints.close()
    assert numbers == [1, 2, 3]


def test_a_place_that_cannot_be_written_is_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EdlError) as caught:
        Checkpoints(tmp_path / "file" / "below", "job", 3).prepare()
    assert caught.value.code == error_pb2.OUTPUT_UNWRITABLE


def test_a_checkpoint_that_cannot_be_written_leaves_the_ones_before(tmp_path: Path) -> None:
    checkpoints = kept(tmp_path)
    checkpoints.write(checkpoint(1))
    (tmp_path / ".job-00000002.tmp").write_text("in the way")
    with pytest.raises(EdlError):
        checkpoints.write(checkpoint(2))
    assert checkpoints.names() == ["job-00000001"]
    assert json.loads((tmp_path / "job-00000001" / "plane.json").read_text()) == {"version": 1}
