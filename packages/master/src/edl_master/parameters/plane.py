"""The parameter plane of a master that has the values itself: coordinator and shard together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from edl_master.adapters.buffer_pool import BufferPool
from edl_master.core.identifiers import HeldLease, WorkerId
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.modes import Reduction
from edl_master.core.parameters.optimizers import FindRule, find_no_rule
from edl_master.core.parameters.permits import PermitGranted, PermitRefused
from edl_master.core.parameters.prepared_gradient import PreparedGradient
from edl_master.core.parameters.push import Gradient, PushClaim, PushOutcome, PushResult
from edl_master.core.parameters.shard import Shard
from edl_master.core.parameters.shard_layout import SavedParameters
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.errors import translate_payload_errors
from edl_master.parameters.job_model import JobModel, MakeMode
from edl_master.parameters.local_stores import LocalStores, SnapshotFutures
from edl_master.parameters.locked_shard import LockedShard, Reading, ReadRequest, copy_out

GOING_ON = (PushOutcome.APPLIED, PushOutcome.ALREADY_APPLIED, PushOutcome.STALE)
"""The outcomes after which the worker continues the task, and needs parameters for it."""


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """The limit of a call's wait.

    Attributes:
        wait_s: at most, in seconds.
        is_wanted: False when the caller is gone.
    """

    wait_s: float = 0.0
    is_wanted: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to a pull.

    Attributes:
        reading: values and rows.
        permit: the answer to the request for a step permit; None if there was none in time.
    """

    reading: Reading
    permit: PermitGranted | PermitRefused | None = None


@dataclass(frozen=True, slots=True)
class Pushed:
    """The answer to a push.

    Attributes:
        result: what was decided.
        reading: newer values and rows; None if none were asked for or the worker drops the task.
        permit_granted: whether the worker may compute the next minibatch of the task.
    """

    result: PushResult
    reading: Reading | None = None
    permit_granted: bool = False


class ParameterPlane:
    """The calls of workers to a master that has the values itself; thread-safe.

    Args:
        coordinator: decides.
        shard: has the values.
    """

    def __init__(self, coordinator: Coordinator, shard: LockedShard) -> None:
        self._coordinator = coordinator
        self._shard = shard

    def initialize(self, worker: WorkerId, values: memoryview) -> bool:
        """Set the initial values unless another worker was first.

        Returns:
            Whether these are the initial values.
        """
        with self._shard.acquire() as shard:
            shard.propose(worker, values)
            accepted = self._coordinator.commit_initial_values(worker)
            self._shard.apply_pending()
            return accepted

    @contextmanager
    def push(
        self,
        worker: WorkerId,
        claim: PushClaim,
        gradient: Gradient,
        *,
        release: Callable[[], None] = lambda: None,
        answer: ReadRequest | None = None,
        waiting: WaitLimit | None = None,
        on_decided: Callable[[PushResult], None] = lambda result: None,
    ) -> Iterator[Pushed]:
        """Count a push and apply its gradient, then read what the worker needs next.

        One acquisition of the shard's lock does all of it, unless the worker has to wait for a
        step permit.

        Args:
            worker: that pushes.
            claim: what the ledger decides on.
            gradient: what the store applies.
            release: called once the memory of the gradient is not used any more.
            answer: what to read; None for nothing.
            waiting: for the next step permit; None: not at all.
            on_decided: called with the result before anything is waited for.
        """
        with ExitStack() as memory:
            released = memory.enter_context(ExitStack())
            released.callback(release)
            self._shard.wait_until_warm()
            with translate_payload_errors():
                prepared = self._shard.store.prepare(gradient)
            reading = result = None
            try:
                with self._shard.acquire() as shard, translate_payload_errors():
                    result = self._commit(shard, worker, claim, prepared)
                    released.close()  # the answer may be copied to the same memory
                    goes_on = answer is not None and result.outcome in GOING_ON
                    waits = goes_on and self._coordinator.limits_permits
                    if answer is not None and goes_on and not waits:
                        buffers = memory.enter_context(self._shard.memory_for(answer))
                        reading = copy_out(shard.store, answer, *buffers)
            finally:
                if result is not None:  # also if there is no memory for the answer
                    on_decided(result)
            if answer is None or not waits:
                yield Pushed(result, reading, permit_granted=goes_on)
                return
            lease = HeldLease(claim.task, claim.token)
            with self.pull(answer, permit_for=lease, worker=worker, waiting=waiting) as pulled:
                is_granted = isinstance(pulled.permit, PermitGranted)
                yield Pushed(result, pulled.reading, is_granted)

    def _commit(
        self, shard: Shard, worker: WorkerId, claim: PushClaim, prepared: PreparedGradient
    ) -> PushResult:
        not_finite = prepared.not_finite
        if prepared.rows:  # a push that does not count must not make rows
            rejected = self._coordinator.judge(claim, not_finite)
            if rejected is not None:
                return rejected
        shard.store.make_ready(prepared)
        shard.prepare(worker, claim.key, prepared)
        result = self._coordinator.commit(claim, not_finite)
        self._shard.apply_pending()
        shard.drop(worker)  # if it was rejected
        return result

    @contextmanager
    def pull(
        self,
        request: ReadRequest,
        *,
        permit_for: HeldLease | None = None,
        worker: WorkerId | None = None,
        waiting: WaitLimit | None = None,
    ) -> Iterator[Pulled]:
        """Read values for a worker, into memory that is its own until the context ends.

        Args:
            request: what to read.
            permit_for: wait for a step permit for this lease first.
            worker: that has this lease; None: its holder.
            waiting: for the permit, or without one for initial values; None: not at all.

        Raises:
            EdlError: VERSION_NOT_FOUND if nothing is frozen under the name in the request.
        """
        waiting = waiting or WaitLimit()
        permit = None
        if permit_for is None:
            version = self._coordinator.wait_for_values(waiting.wait_s, waiting.is_wanted)
            is_current = version is not None and version == request.have
            if version is not None and is_current and not request.rows and not request.frozen:
                yield Pulled(Reading(version))
                return
        else:
            permit = self._coordinator.wait_for_permit(
                permit_for, waiting.wait_s, waiting.is_wanted, worker=worker
            )
            if not isinstance(permit, PermitGranted):
                request = ReadRequest(request.have, request.frozen)  # rows are of no use now
        with self._shard.read(request) as reading:
            yield Pulled(reading, permit)


@dataclass(frozen=True, slots=True)
class LocalParts:
    """A parameter plane with one local store, and its parts."""

    coordinator: Coordinator
    model: JobModel
    shard: LockedShard
    plane: ParameterPlane


def build_local(
    buffers: BufferPool,
    make_mode: MakeMode,
    reduction: Reduction | None = None,
    executor: Executor | None = None,
    saved: SavedParameters | None = None,
    on_described: Callable[[], None] | None = None,
    on_failed: Callable[[Exception], None] = lambda error: None,
    find_rule: FindRule = find_no_rule,
) -> LocalParts:
    """Build the parameter plane of a master without parameter servers.

    Args:
        buffers: where values are copied to.
        make_mode: as for ``JobModel``.
        reduction: as for ``JobModel``.
        executor: as for ``ParameterStore``.
        saved: as for ``JobModel``.
        on_described: as for ``JobModel``.
        on_failed: as for ``LockedShard``.
        find_rule: as for ``parse_optimizer``.
    """
    snapshots = SnapshotFutures()
    shard = LockedShard(buffers, snapshots.fill, on_failed)
    stores = LocalStores(shard, snapshots, executor)
    coordinator = Coordinator(stores)
    model = JobModel(coordinator, stores, make_mode, reduction, saved, on_described, find_rule)
    return LocalParts(coordinator, model, shard, ParameterPlane(coordinator, shard))
