"""A shard: a store, and the gradients and initial values that wait for a command.

Every process that has values has one shard: a master without parameter servers the whole model,
a parameter server its part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.parameters.commands import (
    Command,
    CommitInitialValues,
    CommitPush,
    FinishTraining,
    FlushAccumulated,
    FreezeVersion,
    KeepBestValues,
    ReleaseVersion,
    ReplaceValues,
    RestoreBestValues,
    SetLearningRate,
    TakeSnapshot,
)
from edl_master.core.parameters.payload import Payload, check_size
from edl_master.core.parameters.prepared_gradient import PreparedGradient
from edl_master.core.parameters.push import MinibatchKey
from edl_master.core.parameters.snapshot import Snapshot
from edl_master.core.parameters.store import ParameterStore


class ProtocolViolation(RuntimeError):
    """A command cannot be applied: coordinator and shard disagree. An internal error."""


@dataclass(frozen=True, slots=True)
class ShardSnapshot:
    """The snapshot that a command has asked for."""

    command: TakeSnapshot
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class _Held:
    """A gradient that a worker has prepared.

    Attributes:
        key: of the minibatch, as the worker says; another worker may have said the same.
        prepared: the gradient.
        release: called when it is not held any more.
    """

    key: MinibatchKey
    prepared: PreparedGradient
    release: Callable[[], None]


class Shard:
    """Applies the commands of one command log to a store.

    Attributes:
        store: the values; nothing else changes them.
        applied: number of commands applied so far.
        shares_sums: whether other shards need the sums of squares of this part, see
            ``sharding.shared_sum_count``.
    """

    def __init__(self, store: ParameterStore, shares_sums: bool = False) -> None:
        self.store = store
        self.shares_sums = shares_sums
        self.applied = 0
        self._prepared: dict[WorkerId, _Held] = {}
        self._proposed: dict[WorkerId, Payload] = {}
        self._sent: dict[tuple[WorkerId, Version], Payload] = {}

    # --- what workers send -----------------------------------------------------------------

    def propose(self, worker: WorkerId, values: Payload) -> None:
        """Hold initial values until a command says whose are used; they are not copied.

        Raises:
            PayloadError: they have not ``layout.parameter_nbytes`` bytes.
        """
        check_size("the initial values", values, self.store.layout.parameter_nbytes)
        if not self.store.initialized:
            self._proposed[worker] = values

    def hold_values(self, worker: WorkerId, version: Version, values: Payload) -> None:
        """Hold the values that a worker sends in replicated training; they are not copied.

        Raises:
            PayloadError: they have not ``layout.parameter_nbytes`` bytes.
        """
        check_size("the values", values, self.store.layout.parameter_nbytes)
        self._sent[worker, version] = values

    def drop_values(self, worker: WorkerId, version: Version) -> None:
        """Hold the values of a worker no longer, if they were not used."""
        self._sent.pop((worker, version), None)

    def prepare(
        self,
        worker: WorkerId,
        key: MinibatchKey,
        prepared: PreparedGradient,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """Hold a gradient until a command says that it counts.

        A worker has one at a time: its previous one is dropped. A repeated one of an earlier
        minibatch of the task comes late, and is not held.

        Args:
            worker: that has computed it.
            key: of the minibatch.
            prepared: the gradient, which is finite.
            release: called when the gradient is not held any more.
        """
        held = self._prepared.get(worker)
        if held is not None and held.key[:2] == key[:2] and held.key[2] > key[2]:
            release()
            return
        self.drop(worker)
        self._prepared[worker] = _Held(key, prepared, release)

    def drop(self, worker: WorkerId) -> None:
        """Hold the gradient of a worker no longer, if it has one here."""
        held = self._prepared.pop(worker, None)
        if held is not None:
            held.release()

    # --- commands --------------------------------------------------------------------------

    def apply(  # noqa: C901, PLR0912  (one case for each command)
        self, command: Command
    ) -> ShardSnapshot | None:
        """Apply the next command of the log.

        Returns:
            The snapshot, if that was the command.

        Raises:
            ProtocolViolation: the command cannot be applied.
        """
        taken = None
        match command:
            case CommitInitialValues(worker):
                if worker not in self._proposed or self.store.initialized:
                    raise ProtocolViolation(f"worker {worker} has not proposed initial values")
                self.store.initialize(self._proposed[worker])
                self._proposed.clear()
            case CommitPush():
                self._commit(command)
            case FlushAccumulated(version):
                self.store.flush()
                self._check(command, version)
            case ReplaceValues(worker, version):
                self.store.initialize(self._sent.pop((worker, version)), version)
            case SetLearningRate(rate):
                self.store.set_learning_rate(rate)
            case KeepBestValues():
                self.store.keep_best()
            case RestoreBestValues(version):
                self.store.restore_best()
                self._check(command, version)
            case FinishTraining(version):
                self.store.finish()
                self._check(command, version)
            case FreezeVersion(name):
                self.store.freeze(name)
            case ReleaseVersion(name):
                self.store.release(name)
            case TakeSnapshot():
                taken = ShardSnapshot(command, self.store.snapshot())
            case _:
                assert_never(command)
        self.applied += 1
        return taken

    def _commit(self, command: CommitPush) -> None:
        for worker, held in self._prepared.items():
            if held.key == command.key and command.worker in (None, worker):
                break
        else:
            raise ProtocolViolation(f"{command} was never prepared here")
        self.store.apply(held.prepared, command)
        self.drop(worker)
        self._check(command, command.version)

    def _check(self, command: Command, version: Version) -> None:
        if self.store.version != version:
            raise ProtocolViolation(f"{command} has led to version {self.store.version} here")
