"""This worker's copy of the parameters: which version it is, and how it gets another."""

from __future__ import annotations

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, parameters_pb2, task_pb2
from edl_worker.arena import Arena, Inbox
from edl_worker.link import MasterLink
from edl_worker.training import Step, Trainer


class Replica:
    """The model's weights as a copy of one parameter version of the master.

    Attributes:
        version: of the values that the model has; None if they are not the newest version's
            (initial, frozen, or of another incarnation of the master).
    """

    def __init__(self, arena: Arena, trainer: Trainer, link: MasterLink) -> None:
        self._arena = arena
        self._trainer = trainer
        self._link = link
        self._inbox = Inbox(arena.nbytes)
        self._initial = arena.pack()
        self.version: int | None = None
        self._frozen: tuple[str, int] | None = None

    def forget(self) -> None:
        """The values are no version of the present master."""
        self.version = None
        self._frozen = None

    def send_initial(self) -> bool:
        """Offer the initial values; False if another worker's were first."""
        return self._link.initialize(self._initial.data).accepted

    def refresh(self) -> bool:
        """Make the values those of the newest version; False if the master has none yet."""
        return self._pull(None).initialized

    def acquire_slot(self, lease: task_pb2.LeaseRef) -> bool:
        """Ask for a step slot and the values to use it on; False: ask again."""
        return self._pull(lease).slot_granted

    def use_frozen(self, name: str) -> int:
        """Make the values those of a frozen version; return its number.

        Raises:
            EdlError: there is no such version.
        """
        if self._frozen is None or self._frozen[0] != name:
            self.forget()
            reply = self._link.pull(self._inbox.open, self._arena.nbytes, frozen=name)
            if not reply.nbytes:
                raise EdlError(
                    error_pb2.INTERNAL,
                    f"the master has no values of the frozen version {name}",
                    remedy="This is a defect of edl; the master's log may tell more.",
                )
            self._trainer.assign(self._inbox.content)
            self._frozen = name, reply.version
        return self._frozen[1]

    def push(self, header: parameters_pb2.PushHeader, step: Step) -> parameters_pb2.PushReply:
        """Push a step computed at the present version, and take the values that come back."""
        assert self.version is not None
        header.base_version = self.version
        header.loss = step.loss
        header.gradient_nbytes = sum(part.nbytes for part in step.gradient)
        header.state_nbytes = sum(part.nbytes for part in step.state_delta)
        reply = self._link.push(
            header,
            (*step.gradient, *step.state_delta),
            self._inbox.open,
            2 * self._arena.nbytes,
        )
        if reply.nbytes:
            self._adopt(reply.version)
        return reply

    def _pull(self, slot_for: task_pb2.LeaseRef | None) -> parameters_pb2.PullReply:
        reply = self._link.pull(
            self._inbox.open,
            self._arena.nbytes,
            have_version=self.version,
            slot_for=slot_for,
        )
        if reply.nbytes:
            self._adopt(reply.version)
        return reply

    def _adopt(self, version: int) -> None:
        self._trainer.assign(self._inbox.content)
        self.version = version
        self._frozen = None
