"""The plane of a parameter server: it has a part of the values and does what the master decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from edl_master.core.identifiers import TaskKey, Token, WorkerId
from edl_master.core.parameters.exchange import GradientPush, PushKind
from edl_master.core.parameters.orders import (
    Adopt,
    Apply,
    Close,
    Finish,
    Flush,
    Freeze,
    Grant,
    Keep,
    Order,
    Release,
    Revoke,
)
from edl_master.core.parameters.payload import Payload
from edl_master.core.parameters.plane import ParameterPlane
from edl_master.core.parameters.snapshot import Snapshot

_Minibatch = tuple[TaskKey, Token, int]


class ProtocolViolation(RuntimeError):
    """An order cannot be carried out: master and server have come apart. A defect."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A snapshot that was ordered."""

    order: Keep
    snapshot: Snapshot


class Follower:
    """Carries out orders on a plane, and holds what workers have sent for orders to come.

    Attributes:
        plane: the values; nobody else changes them.
        done: orders carried out so far.

    Args:
        plane: a part.
        shares_sums: see ``sharding.sums_between``.
    """

    def __init__(self, plane: ParameterPlane, shares_sums: bool = False) -> None:
        self.plane = plane
        self._shares_sums = shares_sums
        self.done = 0
        self._staged: dict[_Minibatch, tuple[GradientPush, Callable[[], None]]] = {}
        self._newest: dict[WorkerId, _Minibatch] = {}
        self._offered: dict[WorkerId, Payload] = {}

    def squares(self, push: GradientPush) -> tuple[float, ...]:
        """Of a part: what the other servers need of it to clip theirs; nothing if they do not."""
        return self.plane.squares(push) if self._shares_sums else ()

    # --- what workers send -----------------------------------------------------------------

    def offer(self, worker: WorkerId, values: Payload) -> None:
        """Hold initial values until the master says whose are used."""
        if not self.plane.initialized:
            self._offered[worker] = values

    def stage(
        self, worker: WorkerId, push: GradientPush, let_go: Callable[[], None] = lambda: None
    ) -> None:
        """Hold a gradient until the master says whether it counts.

        A worker has one at a time: the one before is dropped.

        Args:
            worker: whose it is.
            push: the gradient, which ``plane.examine`` has found to be sound.
            let_go: called when it is held no longer.
        """
        self._drop(self._newest.get(worker))
        name = push.task, push.token, push.minibatch
        self._drop(name)
        self._staged[name] = push, let_go
        self._newest[worker] = name

    def _drop(self, name: _Minibatch | None) -> None:
        if name in self._staged:
            self._staged.pop(name)[1]()

    @property
    def staged(self) -> int:
        """How many gradients are held."""
        return len(self._staged)

    # --- what the master decides -----------------------------------------------------------

    def carry_out(self, order: Order) -> Kept | None:
        """Do what an order says; the next one of the master's list.

        Returns:
            What is to be written, if it was an order to keep the state.

        Raises:
            ProtocolViolation: it cannot be done.
        """
        kept = None
        match order:
            case Adopt(worker):
                if worker not in self._offered or not self.plane.initialize(self._offered[worker]):
                    raise ProtocolViolation(f"worker {worker} has offered no initial values")
                self._offered.clear()
            case Grant(task, token):
                self.plane.grant(task, token)
            case Revoke(task, token):
                self.plane.revoke(task, token)
            case Close(task):
                self.plane.close(task)
            case Apply():
                self._apply(order)
            case Flush():
                self.plane.flush()
            case Finish():
                self.plane.finish()
            case Freeze(name):
                self.plane.freeze(name)
            case Release(name):
                self.plane.release(name)
            case Keep():
                kept = Kept(order, self.plane.snapshot())
            case _:
                assert_never(order)
        self.done += 1
        return kept

    def _apply(self, order: Apply) -> None:
        name = order.task, order.token, order.minibatch
        if name not in self._staged:
            raise ProtocolViolation(f"{order} counts, and was never staged here")
        push, _ = self._staged[name]
        outcome = self.plane.push(
            replace(
                push,
                records=order.records,
                base_version=order.base_version,
                minibatches=order.minibatches,
                squares=order.squares,
            )
        )
        self._drop(name)
        if outcome.kind is not PushKind.APPLIED:
            raise ProtocolViolation(f"{order} counts, and is {outcome.kind} here")
