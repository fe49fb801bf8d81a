"""The rounds of a training job: the epochs of its data, or the windows of its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from edl_master.core.mixing import MixedPartition
from edl_master.core.permutation import Permutation, derive_seed
from edl_master.core.settings import JobSettings
from edl_master.core.tasks import Partition, TaskPartition
from edl_master.core.windows import SplitStream


class TrainingRounds(Protocol):
    """The questions that the workflow of a training job asks about its rounds.

    Attributes:
        word: what a round is called.
    """

    word: str

    @property
    def count(self) -> int | None:
        """The number of rounds in the end; None: that is not known yet."""

    @property
    def ready(self) -> int:
        """The number of rounds that may be opened."""

    def count_records(self, stop: int | None = None) -> int:
        """Return the records of the rounds before ``stop``, or of all that are known."""

    def count_tasks(self, first: int) -> int:
        """Return the tasks of all rounds that are ready, from a round on."""

    def divide(self, number: int) -> tuple[Partition, Permutation | None]:
        """Return the tasks of a round, and their order if it is not that of the data."""

    def forget(self, before: int) -> None:
        """Take note that all rounds with a smaller number are complete."""

    def snapshot(self) -> dict[str, Any]:
        """Return what the next master needs, as JSON-able values."""

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` saved; raises ValueError, if it does not fit."""


class Epochs:
    """A number of epochs, each with all the data.

    Args:
        settings: of the job.
        data: records of each file.
        names: of the files, for messages.
    """

    word = "Epoch"

    def __init__(
        self, settings: JobSettings, data: tuple[int, ...], names: Sequence[str] = ()
    ) -> None:
        self._settings = settings
        self._data = data
        self._names = names
        self._partition, _ = self.divide(0)  # every epoch has as many tasks

    @property
    def count(self) -> int:
        return self._settings.num_epochs

    @property
    def ready(self) -> int:
        return self.count

    def count_records(self, stop: int | None = None) -> int:
        return self._partition.records * (self.count if stop is None else stop)

    def count_tasks(self, first: int) -> int:
        return self._partition.count * (self.count - first)

    def divide(self, number: int) -> tuple[Partition, Permutation | None]:
        """Return the tasks of an epoch: they depend only on the settings and on its number."""
        settings = self._settings
        seed, length = derive_seed(settings.seed, number), settings.records_per_task
        if settings.shuffle and settings.mixing is not None:
            return MixedPartition(self._data, length, settings.mixing, seed, self._names), None
        partition = TaskPartition(self._data, length, self._names)
        return partition, Permutation(partition.count, seed) if settings.shuffle else None

    def forget(self, before: int) -> None:
        pass

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, saved: Mapping[str, Any]) -> None:
        if self.count < saved["opened"]:
            raise ValueError(f"num_epochs is {self.count}, but epoch {saved['opened']} had begun")


class Windows:
    """The windows of a stream, which has no end until it is told to end.

    Args:
        stream: to which the job adds what a source discovers.
    """

    word = "Window"

    def __init__(self, stream: SplitStream) -> None:
        self._stream = stream

    @property
    def count(self) -> int | None:
        return self._stream.begun if self._stream.has_ended else None

    @property
    def ready(self) -> int:
        return self._stream.begun

    def count_records(self, stop: int | None = None) -> int:
        later = range(self.ready if stop is None else stop, self.ready)
        return self._stream.records - sum(self._stream.window(n).records for n in later)

    def count_tasks(self, first: int) -> int:
        return sum(self._stream.window(number).count for number in range(first, self.ready))

    def divide(self, number: int) -> tuple[Partition, Permutation | None]:
        return self._stream.window(number), None

    def forget(self, before: int) -> None:
        self._stream.forget(before)

    def snapshot(self) -> dict[str, Any]:
        return {"stream": self._stream.snapshot()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._stream.restore(saved["stream"])
