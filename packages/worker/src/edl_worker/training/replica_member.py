"""This worker as a member of the replica group: its values, its generation, and its steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.codec.replicas import decode_note, encode_note
from edl_worker.concurrency.background_call import BackgroundCall
from edl_worker.concurrency.shared_state import LeavingError, SharedState
from edl_worker.core.batch import Batch
from edl_worker.core.collectives import (
    CollectiveGroup,
    Collectives,
    GenerationEnded,
    PeerUnreachable,
)
from edl_worker.core.exchange import ParameterReply, PullRequest
from edl_worker.core.member_progress import MemberProgress
from edl_worker.core.replica_engine import ReplicaEngine
from edl_worker.core.replicas import Claim, Generation, Holding, Note, ReplicaStep
from edl_worker.core.step_engine import StepResult
from edl_worker.core.tasks import Lease, MasterReplacedError, WorkerPhase
from edl_worker.training.replica import ReceiveBuffer
from edl_worker.training.replica_reporter import ReplicaReporter
from edl_worker.transport.parameter_client import ParameterClient
from edl_worker.transport.replica_client import ReplicaClient

log = logging.getLogger(__name__)

_IDLE_S = 0.01
"""How long an idle member waits for peers before it looks for a task again."""


class ReplicaMember:
    """A member that holds all values, and makes steps together with the others.

    All methods are called by the session's thread.

    Args:
        steps: the model; its values are the member's, unless a task has put these aside.
        collectives: the way to meet the other members.
        reduction: ``mean`` or ``sum``: how the loss reduces a minibatch.
    """

    def __init__(
        self,
        steps: ReplicaEngine,
        parameters: ParameterClient,
        client: ReplicaClient,
        collectives: Collectives,
        state: SharedState,
        reduction: str,
    ) -> None:
        self._steps = steps
        self._parameters = parameters
        self._client = client
        self._collectives = collectives
        self._state = state
        self._progress = MemberProgress(client.worker_id)
        self._reporter = ReplicaReporter(client, self._progress, state)
        self._trainable = sum(group.trainable for group in steps.layout.groups)
        self._parts = [
            replace(part, is_mean=reduction != "sum" or number >= self._trainable)
            for number, part in enumerate(steps.replica_parts)
        ]
        self._buffer = ReceiveBuffer(steps.layout.nbytes)
        self._sending: BackgroundCall[None] = BackgroundCall("values")
        self._leaves = False
        self._steps_after: int | None = None  # the master wants to know the steps after this one
        self._stepped: tuple[int, float] | None = None  # the last step's generation and moment
        self._failure: Exception | None = None  # because of which this worker can be no member
        self._group: CollectiveGroup | None = None  # None: alone, or no member
        self._computed: tuple[tuple[int, int], int | None, StepResult] | None = None
        self._aside: npt.NDArray[np.uint8] | None = None  # the member's values, while a task ...
        self._shown: str | None = None  # ... uses this frozen version in their place

    @property
    def version(self) -> int | None:
        """The version of the member's values."""
        return self._progress.version

    def open(self, layout_fingerprint: str) -> None:
        """Take part with values of this layout from now on."""
        self._client.open(layout_fingerprint)

    # --- membership ------------------------------------------------------------------------

    def join(self) -> bool:
        """Wait a little for a generation, and enter it.

        Returns:
            Whether this worker is a member now that can make a step.

        Raises:
            LeavingError: the worker has to leave.
            MasterReplacedError: the master is another incarnation.
            EdlError: this worker cannot be a member.
        """
        if self._failure is not None:
            raise self._failure
        progress = self._progress
        if progress.is_member and (progress.lost or (progress.ended and self._group is None)):
            self._stop()
        if not progress.is_member:
            self._state.check()
            if self._state.master_replaced:
                raise MasterReplacedError("a heartbeat or report has met another master")
            answer = self._client.join(progress.number, *self._tell_kept())
            self._steps_after = answer.steps_after
            if answer.generation is not None:
                self._enter(answer.generation)
            elif answer.left:
                time.sleep(_IDLE_S)  # the job is over, as the answer to another call says
        return progress.is_member

    def _tell_kept(self) -> tuple[Holding | None, tuple[ReplicaStep, ...]]:
        """Return what a master should know that this worker has not been a member of."""
        if self._progress.generation is not None:
            return None, ()
        with self._reporter.lock:
            kept, after = self._progress.kept, self._steps_after
            return kept.holding, () if after is None else kept.tell(after)

    def take_part(self) -> None:
        """Take part in a step without a minibatch if a peer waits for that; wait a little for it.

        Raises: as ``join``.
        """
        if self.join():
            self._take_part()

    def leave(self, within_s: float) -> None:
        """Leave the group: without its values, if no other member has them.

        The master must know that this worker leaves.

        Raises: as ``TaskClient.return_leases``.
        """
        progress, self._leaves = self._progress, True
        if progress.generation is None:
            return
        if progress.is_member:
            self._stop()
        is_saved, ends = False, time.monotonic() + within_s
        while (left_s := ends - time.monotonic()) > 0:
            if progress.is_member:  # until others have the values
                self._take_part()
                continue
            answer = self._client.join_while_leaving(progress.number, left_s)
            if answer.left:
                log.info("the other members go on without this one")
                return
            if answer.save and not is_saved:
                is_saved = True
                self._send_values()
                self._sending.discard(lambda _: True)
            elif answer.save:
                time.sleep(_IDLE_S)  # the master has the values, and stores them
            elif answer.generation is not None:
                self._enter(answer.generation)

    def forget(self) -> None:
        """Treat the values as no version of the present master, which may continue from them."""
        self._restore()
        self._steps_after = None
        self._close_group()
        self._collectives.release()
        with self._reporter.lock:
            self._progress.forget()
        self._computed = self._failure = self._stepped = None

    def _take_part(self) -> None:
        if self._group is not None and self._group.is_awaited(_IDLE_S):
            self._all_reduce(None, None)
        elif self._progress.ended:
            self._stop()
        elif self._group is None:
            time.sleep(_IDLE_S)

    def _enter(self, generation: Generation) -> None:
        """Enter a generation, with its values; if it ends before that, stop."""
        self._state.phase = WorkerPhase.EXCHANGING
        self._restore()
        with self._reporter.lock:
            self._progress.enter(generation)
        self._reporter.start()
        try:
            self._meet(generation)
            self._fetch_values(generation)
        except PeerUnreachable as error:
            log.warning("generation %d cannot begin: %s", generation.number, error)
            self._stop(error.worker, error.cause)
            return
        except GenerationEnded as error:
            log.info("generation %d ends before it has begun: %s", generation.number, error)
            self._stop()
            return
        except Exception as error:
            self._failure = error
            self._stop()
            raise
        with self._reporter.lock:
            self._progress.on_values()
        self._reporter.hurry()
        self._steps.set_learning_rate(generation.learning_rate)
        if generation.finish:
            self._steps.finish()
        if generation.save and generation.members[0] == self._client.worker_id:
            self._send_values()

    def _meet(self, generation: Generation) -> None:
        members = generation.members
        rank = members.index(self._client.worker_id)
        log.info(
            "generation %d begins at version %d: member %d of %d",
            *(generation.number, generation.version, rank + 1, len(members)),
        )
        if len(members) > 1:
            self._group = self._collectives.meet(generation, self._parts, self._is_over)
        else:
            self._collectives.release()

    def _fetch_values(self, generation: Generation) -> None:
        """Make the values those of the generation's version."""
        has_values = self._client.worker_id in generation.sources
        if not generation.sources:
            while not (reply := self._pull(PullRequest())).initialized:
                if self._is_over():
                    raise GenerationEnded("the master has ended the generation")
                time.sleep(0.05)  # another worker is about to send the initial values
            if reply.version != generation.version:
                raise GenerationEnded(f"the master has version {reply.version} already")
        elif self._group is not None:
            if len(generation.sources) == len(generation.members):
                return
            nbytes = self._steps.layout.nbytes
            is_sender = generation.members[0] == self._client.worker_id
            content = self._steps.pack().data if is_sender else self._buffer.open(nbytes)
            self._group.broadcast(content)
        if not has_values:
            self._steps.assign(self._buffer.content)
            self._computed = None

    def _is_over(self) -> bool:
        leaving = self._state.leaving and not self._leaves
        return self._progress.ended or leaving or self._state.master_replaced

    def _stop(self, unreachable: int | None = None, cause: str = "") -> None:
        """Make no further step in this generation, and say so; see ``MemberProgress.stop``."""
        self._close_group()
        with self._reporter.lock:
            self._progress.stop(unreachable, cause)
        self._reporter.hurry()

    def _close_group(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None

    # --- steps -----------------------------------------------------------------------------

    def find_position(self, lease: Lease, reached: int) -> int:
        """Return the next minibatch of a task; see ``MemberProgress.find_position``."""
        return self._progress.find_position(lease, reached)

    def compute(self, lease: Lease, index: int, batch: Batch) -> StepResult:
        """Compute what a minibatch adds to the next step; alone, the values have it already.

        What was computed from the same values is not computed again.
        """
        self._restore()
        if self._group is None:
            return StepResult((), (), self._steps.step(batch))
        of = lease.token, index
        if self._computed is None or self._computed[:2] != (of, self._progress.version):
            self._computed = None  # its memory is used again
            started = time.perf_counter()
            self._computed = of, self._progress.version, self._steps.gradient(batch)
            self._progress.on_computed(time.perf_counter() - started)
        return self._computed[2]

    def make_step(self, claim: Claim, computed: StepResult) -> None:
        """Make a step with what was computed; without success if the generation ends."""
        if self._group is not None:
            self._all_reduce(claim, computed)
            return
        self._on_step([self._progress.make_note(claim)])

    def _all_reduce(self, claim: Claim | None, computed: StepResult | None) -> None:
        assert self._group is not None, "there are peers"
        self._restore()
        self._state.phase = WorkerPhase.WAITING
        note = encode_note(self._progress.make_note(claim))
        weight = 0 if claim is None else claim.records
        values = [] if computed is None else self._arrays(computed)
        try:
            total, contents = self._group.all_reduce(values, weight, note)
        except GenerationEnded as error:
            log.debug("no further step in this generation: %s", error)
            self._stop()
            return
        finally:
            # Only in the call is there another worker to wait for: what follows may hang by itself.
            self._state.phase = WorkerPhase.EXCHANGING
        notes = [decode_note(content) for content in contents]
        if any(note.claim is not None for note in notes):
            self._steps.apply(total[: self._trainable], total[self._trainable :])
            self._on_step(notes)
        if any(note.stops for note in notes):
            self._stop()

    def _on_step(self, notes: Sequence[Note]) -> None:
        """Record a step; say how long training has paused if it is the first of a generation."""
        number, now = self._progress.number, time.monotonic()
        if self._stepped is not None and self._stepped[0] != number:
            paused_s = now - self._stepped[1]
            log.info("generation %d: the first step is %.2f s after the last one", number, paused_s)
        self._stepped = number, now
        with self._reporter.lock:
            self._progress.on_step(notes)

    def _arrays(self, computed: StepResult) -> list[npt.NDArray[Any]]:
        """Return numbers for all parts; zeros where training changes no state."""
        given: Sequence[memoryview] = [*computed.gradient, *computed.state_delta]
        arrays = [
            np.frombuffer(each, part.dtype) for each, part in zip(given, self._parts, strict=False)
        ]
        missing = self._parts[len(arrays) :]
        return arrays + [np.broadcast_to(np.zeros((), p.dtype), p.count) for p in missing]

    # --- values ----------------------------------------------------------------------------

    def use_frozen(self, name: str = "") -> None:
        """Make the model's values those of a frozen version, or of the master's newest one.

        The member's own come back before the next step.

        Raises:
            EdlError: there is no such version.
        """
        if name and name == self._shown:
            return
        have = self._progress.version if self._shown is None else None
        reply = self._pull(PullRequest(have_version=have, frozen=name))
        if have is not None and reply.version == have:
            return
        if not reply.nbytes:
            raise EdlError(
                ErrorCode.INTERNAL,
                f"the master has no values of the frozen version {name}",
                remedy="This is an internal error; see the master's log.",
            )
        is_kept = have is not None or self._progress.kept.version is not None
        if self._shown is None and is_kept:
            self._aside = self._steps.pack()
        self._steps.assign(self._buffer.content)
        self._shown = name

    def _restore(self) -> None:
        """Give the model the member's own values again."""
        if self._aside is not None:
            self._steps.assign(self._aside)
        self._aside = self._shown = None

    def _pull(self, request: PullRequest) -> ParameterReply:
        return self._parameters.pull(request, self._buffer.open, self._steps.layout.nbytes)

    def _send_values(self) -> None:
        """Send the present values to the master, while training goes on."""
        self._restore()
        version, payload = self._progress.version, self._steps.pack()
        if self._sending.is_pending:
            self._sending.result()
        if version is not None:
            self._sending.start(lambda: self._put_values(version, payload))

    def _put_values(self, version: int, payload: npt.NDArray[np.uint8]) -> None:
        with suppress(LeavingError, MasterReplacedError):
            try:
                self._parameters.put_values(version, payload.data)
            except EdlError as error:
                log.warning("the master did not take the values of version %d: %s", version, error)
