"""The connection to the job's master: calls with a deadline, repeated while that is safe.

All calls are safe to repeat. Tokens and minibatch indices make a repeated push or completion
change nothing; a lease whose reply was lost is never renewed and so expires.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import grpc

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.credentials import Credentials, Peer
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.transport.direct_connection import FrameError
from edl_worker.concurrency.shared_state import Departure, SharedState
from edl_worker.config import Settings
from edl_worker.core import backoff
from edl_worker.core.registration import WorkerIdentity
from edl_worker.core.tasks import MasterReplacedError
from edl_worker.transport.log_index import LogIndex
from edl_worker.transport.server_calls import PASSING, ParameterServerLostError

log = logging.getLogger(__name__)

T = TypeVar("T")


class MasterConnection:
    """The channel to one master, what identifies its incarnation, and the rules for retries.

    Attributes:
        incarnation: of the master with which this worker has registered last.
        log_index: newest entry of this incarnation's command log that a reply has named.
        credentials: of this worker; None if the job is not secured.
        master: what has to be at the master's address.

    Raises:
        EdlError: FORBIDDEN; the file of the worker's identity cannot be used.
    """

    def __init__(self, settings: Settings, identity: WorkerIdentity, state: SharedState) -> None:
        self.settings = settings
        self.identity = identity
        self.credentials = Credentials(Path(settings.identity)) if settings.identity else None
        self.master = self.peer(Role.MASTER)
        self.channel = channels.connect(settings.master, self.master)
        self.incarnation = ""
        self.log_index = LogIndex()
        self._state = state

    def close(self) -> None:
        self.channel.close()

    def peer(self, role: Role, number: int | None = None) -> Peer | None:
        """Return who has to be at the other end of a connection; None if anyone may be."""
        return self.credentials.to(role, number) if self.credentials is not None else None

    def use_incarnation(self, incarnation: str) -> None:
        """Name this incarnation in all later calls."""
        self.incarnation = incarnation
        # Late replies of the former master must not change the new index.
        self.log_index = LogIndex()

    def transfer_timeout_s(self, nbytes: int) -> float:
        """Return the deadline of a call that moves so many bytes."""
        settings = self.settings
        return settings.call_timeout_s + 2 * nbytes / settings.slowest_bytes_per_s

    def call(self, name: str, attempt: Callable[[], T]) -> T:
        """Repeat a call until there is a reply, or the called process has been away too long.

        A call that comes too early, such as one that needs a parameter server that still starts,
        is repeated until the worker has to leave.

        Raises:
            EdlError: the error with which the master replied.
            MasterReplacedError: the master is another incarnation.
            LeavingError: the worker has to leave; also when the wait is over.
        """
        failing_since, was_early = 0.0, False
        missing: ParameterServerLostError | None = None
        for delay_s in backoff.delays(random.random):
            started = time.monotonic()
            try:
                reply = attempt()
            except ParameterServerLostError as error:
                cause, absent = str(error), error
                limit_s = min(self.settings.master_wait_s, self.settings.server_wait_s)
            except (grpc.RpcError, FrameError) as error:
                if _is_early(error):
                    # No time limit: the master, which replies, knows its parameter servers, and
                    # ends a job that makes no progress.
                    if not was_early:
                        log.warning("%s comes too early (%s); trying again", name, error)
                    failing_since, was_early = 0.0, True
                    self._state.sleep(delay_s)
                    continue
                cause, absent = self._transient_cause(name, error), None
                limit_s = self.settings.master_wait_s
            else:
                if failing_since:
                    log.info("%s is answered again", name)
                return reply
            now = time.monotonic()
            if not failing_since or (absent is None) != (missing is None):
                # The other process is missing now, and it has a time limit of its own.
                failing_since, missing = started, absent
                source = "" if absent else f" from the master at {self.settings.master}"
                log.warning(
                    "no answer to %s%s (%s); trying for %.0f s", *(name, source, cause, limit_s)
                )
            if now + delay_s - failing_since > limit_s:
                self._state.leave(self._departure(now - failing_since, cause, absent))
            self._state.sleep(delay_s)
        raise AssertionError("delays never end")

    def call_while_leaving(self, name: str, attempt: Callable[[float], T], within_s: float) -> T:
        """Repeat a call for ``within_s`` at most, also while the worker leaves.

        Args:
            attempt: the call, given its deadline in seconds.

        Raises:
            EdlError: the error with which the master replied, or MASTER_LOST.
            MasterReplacedError: the master is another incarnation.
        """
        started = time.monotonic()
        for delay_s in backoff.delays(random.random):
            left_s = max(0.05, started + within_s - time.monotonic())
            try:
                return attempt(left_s)
            except grpc.RpcError as error:
                cause = self._transient_cause(name, error)
            waited_s = time.monotonic() - started
            if waited_s + delay_s > within_s:
                raise self.master_lost(waited_s, cause)
            time.sleep(delay_s)
        raise AssertionError("delays never end")

    def _departure(
        self, seconds: float, cause: str, absent: ParameterServerLostError | None
    ) -> Departure:
        if absent is None:
            return Departure("master-lost", self.master_lost(seconds, cause), report=False)
        return Departure(
            f"parameter-server-{absent.number}-lost", self._server_lost(seconds, absent)
        )

    def _transient_cause(self, name: str, error: Exception) -> str:
        """Return the cause of a failure that may pass; raise the error of any other."""
        if isinstance(error, FrameError):
            return str(error)
        assert isinstance(error, grpc.RpcError)
        raise_reported(error)
        code, details = error.code(), error.details()
        if code in PASSING:
            return f"{code.name}: {details}"
        raise EdlError(
            ErrorCode.INTERNAL,
            f"the master refused {name} with {code.name}: {details}",
            where=f"master at {self.settings.master}",
            remedy="Use the same version of edl for client, master and worker; if you do, this is "
            "an internal error.",
        ) from error

    def _server_lost(self, seconds: float, error: ParameterServerLostError) -> EdlError:
        return EdlError(
            ErrorCode.PARAMETER_SERVER_LOST,
            f"parameter server {error.number} could not be reached for {seconds:.0f} s"
            f" ({error.cause}), though the master could",
            where=f"worker {self.identity.worker_id} on {self.identity.host}, "
            f"parameter server at {error.address}",
            remedy="Look at the network between the two; the task has gone back to the master, and"
            " another instance of the worker is started.",
        )

    def master_lost(self, seconds: float, cause: str) -> EdlError:
        """Return the error of a worker that could not reach the master for so long."""
        return EdlError(
            ErrorCode.MASTER_LOST,
            f"the job's master could not be reached for {seconds:.0f} s ({cause})",
            where=f"worker {self.identity.worker_id} on {self.identity.host}, "
            f"master at {self.settings.master}",
            remedy="See the master's log for why it ended; the job's directory has it as "
            "logs/master.log. EDL_MASTER_WAIT_S sets how long workers wait.",
        )


def _is_early(error: Exception) -> bool:
    """Whether a later call may succeed: what it needs is still on its way."""
    reported = EdlError.from_rpc(error) if isinstance(error, grpc.RpcError) else None
    return reported is not None and reported.code == ErrorCode.NOT_READY


def raise_reported(error: grpc.RpcError) -> None:
    """Raise the error that the master has sent with a failed call, if it has sent one."""
    reported = EdlError.from_rpc(error)
    if reported is None:
        return
    if reported.code == ErrorCode.STALE_INCARNATION:
        raise MasterReplacedError(reported.what) from None
    raise reported from None
