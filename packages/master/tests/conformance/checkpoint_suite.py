"""What every place of checkpoints promises, as tests; see ``edl_master.adapters.checkpoints``.

A place's test module subclasses ``CheckpointSuite`` and gives it a ``world``. What is damaged here
is damaged behind the place's back, through fsspec, whatever the place is.
"""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edl_master.adapters import checkpoint_files
from edl_master.adapters.checkpoint_files import Checkpoint
from edl_master.adapters.checkpoints import CheckpointStorage, part_path, write_part
from edl_proto.errors import EdlError, ErrorCode
from recordio.storage.stores import filesystem


class Pieces:
    """An array that comes piece by piece."""

    def __init__(self, array: np.ndarray[Any, Any], pieces: int) -> None:
        self.dtype, self.size = array.dtype, array.size
        self._pieces = np.array_split(array, pieces)

    def pieces(self) -> Iterator[np.ndarray[Any, Any]]:
        yield from self._pieces


def checkpoint(number: int) -> Checkpoint:
    return Checkpoint(
        {"ledger": {"position": number, "text": "äöü"}, "plane": {"version": number}},
        {
            "values/trainable/float32": np.arange(1000, dtype=np.float32) + number,
            "slots/m/float64": np.array([np.pi, np.inf]),
            "empty": np.empty(0, np.float32),
        },
    )


class World:
    """Places under one root.

    Args:
        root: a path or a URI under which nothing is.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.places: list[CheckpointStorage] = []
        self.system, self.path = fsspec.core.url_to_fs(root)

    @abstractmethod
    def place(self, keep: int = 3, job: str = "job") -> CheckpointStorage:
        """A place, prepared by a new master."""

    @abstractmethod
    def parts_in(self, place: CheckpointStorage) -> Path:
        """The directory where other processes write their parts."""

    def objects(self, below: str = "") -> list[str]:
        """Files below a name, from there."""
        self.system.invalidate_cache()
        above = f"{self.path}/{below}".rstrip("/") + "/"
        return sorted(path.removeprefix(above) for path in self.system.find(above))

    def read(self, file: str) -> bytes:
        content: bytes = self.system.cat_file(f"{self.path}/{file}")
        return content

    def write(self, file: str, content: bytes) -> None:
        self.system.pipe_file(f"{self.path}/{file}", content)

    def remove(self, file: str) -> None:
        self.system.rm_file(f"{self.path}/{file}")

    def close(self) -> None:
        for place in self.places:
            place.close()


def keep(place: CheckpointStorage, what: Checkpoint, parts: tuple[Path, ...] = ()) -> None:
    assert place.publish(place.write(what, parts))


def newest(place: CheckpointStorage) -> tuple[Checkpoint | None, list[tuple[str, str]]]:
    damaged: list[tuple[str, str]] = []
    return place.newest(lambda name, problem: damaged.append((name, problem))), damaged


def version(found: Checkpoint | None) -> int:
    assert found is not None
    return int(found.documents["plane"]["version"])


class CheckpointSuite:
    """Needs the fixture ``world``; ``fresh`` gives another one where a test needs many."""

    @abstractmethod
    def fresh(self, here: Path) -> World: ...

    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[World]:
        world = self.fresh(tmp_path)
        yield world
        world.close()

    def test_what_was_kept_comes_back_as_it_was(self, world: World) -> None:
        place = world.place()
        assert newest(place) == (None, [])
        keep(place, checkpoint(7))
        found, damaged = newest(place)
        assert found is not None
        assert damaged == []
        assert [found.name] == place.names() == ["job-00000001"]
        assert found.documents == checkpoint(7).documents
        assert found.arrays.keys() == checkpoint(7).arrays.keys()
        for key, array in checkpoint(7).arrays.items():
            assert np.asarray(found.arrays[key]).dtype == np.asarray(array).dtype
            assert np.array_equal(found.arrays[key], array)

    def test_an_array_in_pieces_comes_back_whole(self, world: World) -> None:
        place = world.place()
        array = np.random.default_rng(1).normal(size=300_000)
        keep(place, Checkpoint({"ledger": {}}, {"a": Pieces(array, 7)}))
        found, _ = newest(place)
        assert found is not None
        np.testing.assert_array_equal(found.arrays["a"], array)

    def test_when_it_was_taken_is_known(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = world.place()
        assert place.newest_at() == 0
        moment = checkpoint_files.Moment("this boot", 1234, 1.7e9)
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint_files.Moment, "now", lambda: moment)
            keep(place, checkpoint(1))
        found, _ = newest(place)
        assert found is not None
        assert found.taken == moment
        place.close()
        assert world.place().newest_at() == 1.7e9

    def test_of_a_damaged_one_the_time_is_not_known(self, world: World) -> None:
        place = world.place()
        before = time.time()
        keep(place, checkpoint(1))
        between = time.time()
        keep(place, checkpoint(2))
        world.write("job-00000002/manifest.json", b"{}")
        assert before <= place.newest_at() <= between

    def test_the_last_ones_stay_and_those_of_other_jobs(self, world: World) -> None:
        other = world.place(job="job-other")
        keep(other, checkpoint(1))
        place = world.place(keep=2)
        for number in range(5):
            keep(place, checkpoint(number))
        assert place.names() == ["job-00000004", "job-00000005"]
        assert other.names() == ["job-other-00000001"]
        assert version(newest(place)[0]) == 4
        assert not [path for path in world.objects() if path.startswith("job-00000001")]
        assert not [path for path in world.objects() if ".tmp" in path]

    def test_the_next_master_goes_on_counting(self, world: World) -> None:
        first = world.place()
        keep(first, checkpoint(1))
        first.close()
        second = world.place()
        assert version(newest(second)[0]) == 1
        keep(second, checkpoint(2))
        assert second.names() == ["job-00000001", "job-00000002"]

    def test_parts_of_other_processes_are_within_it(self, world: World) -> None:
        place = world.place(keep=1)
        for label in ("a", "b"):
            place.expect(label)
            for number in range(3):
                path = part_path(world.parts_in(place), "job", label, number)
                write_part(path, "job", checkpoint(10 + number))
        parts = tuple(place.parts("b", 3))
        assert not part_path(world.parts_in(place), "job", "a", 0).exists()
        keep(place, checkpoint(1), parts)
        found, _ = newest(place)
        assert version(found) == 1
        assert found is not None
        assert [version(part) for part in found.parts] == [10, 11, 12]
        assert found.path is not None
        again = checkpoint_files.read_checkpoint(found.path)
        assert [version(part) for part in again.parts] == [10, 11, 12]
        np.testing.assert_array_equal(
            again.parts[2].arrays["values/trainable/float32"],
            np.arange(1000, dtype=np.float32) + 12,
        )

    def test_a_part_with_a_hole_is_damage(self, world: World) -> None:
        place = world.place()
        keep(place, checkpoint(1))
        for number in range(2):
            write_part(part_path(world.parts_in(place), "job", "a", number), "job", checkpoint(5))
        place.expect("a")
        keep(place, checkpoint(2), tuple(place.parts("a", 2)))
        world.remove("job-00000002/part-1/array-0000.npy")
        found, damaged = newest(place)
        assert version(found) == 1
        ((name, problem),) = damaged
        assert name == "job-00000002"
        assert "array-0000.npy" in problem

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_any_damage_is_found_and_the_one_before_is_used(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        world = self.fresh(tmp_path_factory.mktemp("world"))
        place = world.place()
        keep(place, checkpoint(1))
        with pytest.MonkeyPatch.context() as patch:
            moment = checkpoint_files.Moment("this boot", 1234)  # always the same octets
            patch.setattr(checkpoint_files.Moment, "now", lambda: moment)
            keep(place, checkpoint(2))
        file = data.draw(st.sampled_from(world.objects("job-00000002")))
        path = f"job-00000002/{file}"
        content = bytearray(world.read(path))
        kinds = ["flip", "cut", "longer", "missing"]
        if file == "manifest.json":
            kinds.remove("missing")  # what that is differs: in a store it never was whole
        kind = data.draw(st.sampled_from(kinds))
        if kind == "flip":
            at = data.draw(st.integers(0, len(content) - 1))
            content[at] ^= 1 << data.draw(st.integers(0, 7))
            world.write(path, bytes(content))
        elif kind == "cut":
            world.write(path, bytes(content[: data.draw(st.integers(0, len(content) - 1))]))
        elif kind == "longer":
            world.write(path, bytes(content) + b"x")
        else:
            world.remove(path)
        found, damaged = newest(place)
        if damaged:
            assert [name for name, _ in damaged] == ["job-00000002"]
            assert version(found) == 1
        else:
            # A change that means nothing, such as a blank in the manifest's JSON.
            assert file == "manifest.json"
            assert found is not None
            assert found.documents == checkpoint(2).documents
            assert np.array_equal(
                found.arrays["values/trainable/float32"],
                np.arange(1000, dtype=np.float32) + 2,
            )
        world.close()

    def test_when_all_are_damaged_training_does_not_begin_anew_in_silence(
        self, world: World
    ) -> None:
        place = world.place()
        keep(place, checkpoint(1))
        world.write("job-00000001/ledger.json", b"{}")
        with pytest.raises(EdlError) as caught:
            newest(place)
        assert caught.value.code == ErrorCode.CHECKPOINT_DAMAGED
        assert "ledger.json" in caught.value.what
        assert caught.value.where.endswith(world.path)
        assert caught.value.remedy

    def test_an_earlier_master_finds_its_number_changed(self, world: World) -> None:
        first = world.place()
        keep(first, checkpoint(1))
        number = int(world.read(".job.owner").split()[0])
        # As another machine would.
        world.write(".job.owner", b"%d another" % (number + 1))
        with pytest.raises(EdlError) as caught:
            keep(first, checkpoint(2))
        assert caught.value.code == ErrorCode.STALE_INCARNATION
        assert first.names() == ["job-00000001"]

    def test_every_master_has_a_greater_number(self, world: World) -> None:
        numbers = []
        for _ in range(3):
            place = world.place()
            numbers.append(int(world.read(".job.owner").split()[0]))
            place.close()
        assert numbers == [1, 2, 3]


def unused_uri(scheme: str) -> str:
    """A URI under which nothing is; its bucket is there, since edl never makes one."""
    bucket = uuid.uuid4().hex
    if scheme == "s3":
        system, _ = filesystem(f"s3://{bucket}")
        system.mkdir(bucket)
    return f"{scheme}://{bucket}/kept"
