"""The coordinator: the push ledger behind its lock, and the log of its decisions.

Everything here is short: nothing is computed or copied under the lock. Whoever holds the job's lock
may call every method but ``describe``, ``warm_up`` and those that wait.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from edl_master.core.events import HeldLease
from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.commands import (
    CommitInitialValues,
    CommitPush,
    FinishTraining,
    FlushAccumulated,
    FreezeVersion,
    ReleaseVersion,
)
from edl_master.core.parameters.faults import LayoutError
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Reduction, UpdateMode
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.permits import PermitGranted, PermitRefused
from edl_master.core.parameters.push import PushClaim, PushOutcome, PushResult
from edl_master.core.parameters.push_ledger import PushLedger
from edl_master.core.parameters.sharding import Part, Saved
from edl_master.core.parameters.snapshot import SnapshotError
from edl_master.core.parameters.status import PlaneStatus
from edl_master.core.parameters.tables.spec import TableSpec
from edl_master.parameters.errors import not_ready
from edl_master.parameters.stores import Model, PendingSnapshot, Stores
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2

MakeMode = Callable[[Reduction], UpdateMode]


class Coordinator:
    """Decides about the parameters of one job; for many threads.

    There is no ledger until the first worker has described its model; every method that needs
    one raises ``EdlError`` NOT_READY before.

    Args:
        stores: apply what is decided.
        make_mode: how gradients become updates, given how the loss reduces a minibatch.
        reduction: of the loss, if the user has set it.
        saved: the state to restore; None for a new job.
        on_described: called once there is a model, and has ``warm_up`` called in the background;
            None: everything is compiled by the first push.
    """

    def __init__(
        self,
        stores: Stores,
        make_mode: MakeMode,
        reduction: Reduction | None,
        saved: Saved | None = None,
        on_described: Callable[[], None] | None = None,
    ) -> None:
        self._stores = stores
        self._make_mode = make_mode
        self._reduction = reduction
        self._saved = saved
        self._on_described = on_described
        self._describing = threading.Lock()
        self._changed = threading.Condition()
        self._ledger: PushLedger | None = None
        self._model: Model | None = None
        self._over = False

    # --- the model -------------------------------------------------------------------------

    def describe(
        self,
        variables: tuple[Variable, ...],
        optimizer_json: str,
        reduction: str,
        tables: Callable[[], tuple[TableSpec, ...]] = tuple,
    ) -> tuple[str, bool]:
        """Take the job's model from the first worker; compare the others' with it.

        Args:
            variables: of the worker's model, in wire order.
            optimizer_json: the optimizer as Keras serializes it.
            reduction: of the loss, as the worker has found it; may be empty.
            tables: gives the embedding tables; raises ``LayoutError`` if there cannot be such.

        Returns:
            The layout's fingerprint, and whether initial values are missing.

        Raises:
            EdlError: MODEL_CONTRACT, OPTIMIZER_UNSUPPORTED or SHAPE_MISMATCH.
        """
        try:
            layout = Layout(variables, tables())
        except LayoutError as error:
            raise EdlError(error_pb2.MODEL_CONTRACT, str(error), where="the model") from error
        with self._describing:
            if self._model is None:
                self._begin(layout, optimizer_json, reduction)
            elif difference := self._model.layout.mismatch(layout):
                raise EdlError(
                    error_pb2.SHAPE_MISMATCH,
                    f"this worker's model is not the job's: {difference}",
                    where="the model",
                    remedy="All workers must load the same model file and build it the same way.",
                )
            return layout.fingerprint, not self._made.initialized

    def _begin(self, layout: Layout, optimizer_json: str, reduction: str) -> None:
        try:
            optimizer = parse_optimizer(json.loads(optimizer_json))
            mode = self._make_mode(self._reduction or Reduction(reduction or Reduction.MEAN))
            if self._saved and (difference := self._saved.model().mismatch(layout)):
                raise SnapshotError(f"the snapshot is of another model: {difference}")
            model = Model(layout, optimizer, optimizer_json, mode)
            decided = self._stores.begin(model, self._saved)
        except OptimizerUnsupported as error:
            raise EdlError(
                error_pb2.OPTIMIZER_UNSUPPORTED,
                str(error),
                where="the optimizer of the model file",
                remedy=f"Instead: {error.remedy}.",
            ) from error
        except SnapshotError as error:
            raise EdlError(
                error_pb2.SHAPE_MISMATCH,
                f"the checkpoint does not fit: {error}",
                where="--checkpoint-dir",
                remedy="Use the model file that it was made with, or another directory.",
            ) from error
        except ValueError as error:
            raise EdlError(
                error_pb2.MODEL_CONTRACT, str(error), where="the optimizer or loss of the model"
            ) from error
        ledger = PushLedger(mode, keeps_average=optimizer.ema is not None)
        if decided is not None:
            ledger.restore(decided.meta)
        self._saved = None  # its memory is the store's now
        with self._changed:
            self._ledger, self._model = ledger, model
        if self._on_described is None:
            self._stores.warm_up()
        else:
            self._on_described()

    def warm_up(self) -> None:
        """Compile what updates need; it takes seconds, and no lock is held."""
        self._stores.warm_up()

    @property
    def fingerprint(self) -> str:
        """Of the job's model."""
        if self._model is None:
            raise not_ready()
        return self._model.layout.fingerprint

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each parameter server has; empty if there are none."""
        return self._stores.parts

    @property
    def log_index(self) -> int:
        """Commands that a worker that has this answer must wait for; 0 without servers."""
        return self._stores.log_index

    @property
    def _made(self) -> PushLedger:
        if self._ledger is None:
            raise not_ready()
        return self._ledger

    # --- workers ---------------------------------------------------------------------------

    @property
    def limits_permits(self) -> bool:
        """Whether a worker may have to wait for a step permit."""
        return self._made.limits_permits

    def commit_initial_values(self, worker: WorkerId) -> tuple[bool, Version]:
        """Use the values that a worker has proposed to all stores, unless there are values.

        Returns:
            Whether they are used, and the parameter version.
        """
        with self._changing() as ledger:
            accepted = ledger.initialize()
            if accepted:
                self._stores.append(CommitInitialValues(worker))
            return accepted, ledger.version

    def judge(self, claim: PushClaim, not_finite: str = "") -> PushResult | None:
        """Reject a push that cannot count now; None if ``commit`` would accept it."""
        with self._changed:
            return self._made.judge(claim, not_finite)

    def commit(
        self, claim: PushClaim, not_finite: str = "", squares: tuple[float, ...] = ()
    ) -> PushResult:
        """Count a push whose gradient all stores have prepared, and have them apply it.

        Args:
            claim: what the push claims.
            not_finite: as in ``PushLedger.judge``.
            squares: sums of squares over all parts, if there are several.

        Raises:
            PayloadError: there are not as many sums as the stores need.
        """
        if len(squares) != (needed := self._stores.shared_sums):
            raise PayloadError(f"{len(squares)} sums of squares came, not {needed}")
        with self._changing() as ledger:
            result = ledger.commit(claim, not_finite)
            if result.outcome is PushOutcome.APPLIED:
                self._stores.append(
                    CommitPush(
                        claim.task,
                        claim.token,
                        claim.minibatch,
                        claim.records,
                        result.version,
                        claim.minibatches,
                        squares,
                    )
                )
            return result

    def wait_for_permit(
        self, lease: HeldLease, wait_s: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> PermitGranted | PermitRefused | None:
        """Wait for a step permit.

        Args:
            lease: that needs it.
            wait_s: how long to wait at most.
            is_wanted: False when the caller is gone.

        Returns:
            None if the time is over, or the job, or the caller is gone.
        """
        deadline = time.monotonic() + wait_s
        with self._changed:
            while True:
                answer = self._made.request_permit(lease.task, lease.token)
                if isinstance(answer, PermitGranted | PermitRefused):
                    return answer
                if not self._wait(deadline, is_wanted):
                    return None

    def wait_for_values(
        self, wait_s: float, is_wanted: Callable[[], bool] = lambda: True
    ) -> Version | None:
        """Wait for the initial values; return the parameter version, or None without values."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not self._made.initialized:
                if not self._wait(deadline, is_wanted):
                    return None
            return self._made.version

    def _wait(self, deadline: float, is_wanted: Callable[[], bool]) -> bool:
        """Wait for a change, with the lock; False if there is nothing to wait for any more."""
        left_s = deadline - time.monotonic()
        if left_s <= 0 or self._over:
            return False
        self._changed.wait(left_s)
        return is_wanted()

    # --- the job ---------------------------------------------------------------------------

    def grant(self, task: TaskKey, token: Token) -> int:
        """From now on only this token may push for the task; returns the minibatches to skip."""
        with self._changing() as ledger:
            return ledger.grant(task, token)

    def revoke(self, task: TaskKey, token: Token) -> None:
        """This token may push no more."""
        with self._changing_if_made() as ledger:
            if ledger and not ledger.revoke(task, token):
                self._changed.notify_all()  # no permit became free; its holder may wait for one

    def close(self, task: TaskKey) -> None:
        """Forget the count of a task that is complete or given up."""
        with self._changing_if_made() as ledger:
            if ledger:
                ledger.close(task)

    def applied(self, task: TaskKey) -> int:
        """Minibatches of an open task that have been applied; 0 for any other task."""
        with self._changed:
            return self._ledger.applied_counts().get(task, 0) if self._ledger else 0

    def flush(self) -> None:
        """Make an update of the accumulated gradients (sync mode)."""
        with self._changing_if_made() as ledger:
            if ledger:
                self._flush(ledger)

    def _flush(self, ledger: PushLedger) -> None:
        if ledger.flush():
            self._stores.append(FlushAccumulated(ledger.version))

    def finish(self) -> None:
        """Training is over: put the optimizer's average of the values in place, if it has one."""
        with self._changing_if_made() as ledger:
            if ledger:
                self._flush(ledger)
                if ledger.finish():
                    self._stores.append(FinishTraining(ledger.version))

    def freeze(self, name: str) -> Version:
        """Keep the present values under a name."""
        with self._changed:
            version = self._made.freeze(name)
            self._stores.append(FreezeVersion(name))
            return version

    def release(self, name: str) -> None:
        """Forget frozen values."""
        with self._changed:
            if self._ledger and self._ledger.release(name):
                self._stores.append(ReleaseVersion(name))

    def snapshot(self, place: str) -> PendingSnapshot | None:
        """Take a snapshot of ledger and values; None while there is nothing to keep.

        Args:
            place: where parameter servers are to write their parts of it.
        """
        with self._changed:
            if self._ledger is None or not self._ledger.initialized:
                return None
            return self._stores.take_snapshot(self._ledger.describe(), place)

    def let_go(self) -> None:
        """The job is over: end all waiting."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    # --- figures ---------------------------------------------------------------------------

    def status(self) -> PlaneStatus | None:
        """Figures; None while there is no model."""
        with self._changed:
            ledger, model = self._ledger, self._model
            if ledger is None or model is None:
                return None
            rejected = ledger.outcomes.copy()
            applied = rejected.pop(PushOutcome.APPLIED, 0)
            status = PlaneStatus(
                version=ledger.version,
                learning_rate=float(model.optimizer.learning_rate(ledger.iterations)),
                records_applied=ledger.records_applied,
                gradients_applied=applied,
                gradients_rejected=rejected,
                staleness_total=ledger.staleness_total,
                accumulated=ledger.accumulated,
                step_permits_held=ledger.permits_held,
                open_tasks=len(ledger.applied_counts()),
            )
        return replace(status, tables=self._stores.tables())

    def table_rows(self) -> Mapping[str, int]:
        """Rows of each embedding table; empty while there is no model."""
        return self._stores.tables().rows if self._ledger else {}

    # --- inside ----------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[PushLedger]:
        with self._changed:
            ledger = self._made
            before = ledger.generation
            try:
                yield ledger
            finally:
                if ledger.generation != before:
                    self._changed.notify_all()

    @contextmanager
    def _changing_if_made(self) -> Iterator[PushLedger | None]:
        if self._ledger is None:
            yield None
        else:
            with self._changing() as ledger:
                yield ledger
