"""The master as the worker sees it: every call with a deadline, tried again while that is safe.

All calls are safe to repeat. Tokens and minibatch indices make a repeated push or completion
change nothing; a lease whose answer was lost is never renewed and so goes back by itself.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import grpc

from edl_proto.errors import EdlError
from edl_proto.transport import channels
from edl_proto.transport.parameters import CoordinatorStub, ParametersStub
from edl_proto.transport.tcp import FrameError
from edl_proto.v1 import error_pb2, job_pb2, parameters_pb2, task_pb2, task_pb2_grpc
from edl_worker.concurrency.shared_state import Departure, SharedState
from edl_worker.config import Settings
from edl_worker.core import backoff
from edl_worker.transport.log_index import LogIndex
from edl_worker.transport.parameter_servers import (
    PASSING,
    ParameterServerClient,
    ParameterServerLostError,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_NOTHING = memoryview(b"")


def _refuse(nbytes: int) -> memoryview:
    raise FrameError(f"{nbytes} bytes of rows came that nobody has asked for")


class MasterReplacedError(Exception):
    """The master is another incarnation than the one this worker registered with."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who this worker is."""

    worker_id: int
    instance: str
    host: str
    pid: int


class MasterClient:
    """Adapter to the services Tasks and Parameters of one master.

    Methods raise ``EdlError`` for what the master said, ``MasterReplacedError`` when it is
    another incarnation, and ``LeavingError`` when the worker has to leave while it waits for a
    master that is away; after ``master_wait_s`` of that the worker has to leave.
    """

    def __init__(self, settings: Settings, identity: WorkerIdentity, state: SharedState) -> None:
        self._settings = settings
        self._identity = identity
        self._state = state
        self._channel = channels.connect(settings.master)
        self._tasks = task_pb2_grpc.TasksStub(self._channel)
        self._parameters: ParametersStub | ParameterServerClient
        self._parameters = ParametersStub(self._channel, settings.master)
        self._log_index = LogIndex()
        self.incarnation = ""
        self.layout_fingerprint = ""

    def close(self) -> None:
        self._parameters.close()
        self._channel.close()

    # --- joining ---------------------------------------------------------------------------

    def register(self, metrics_port: int) -> task_pb2.RegisterReply:
        """Say who this is; the reply's incarnation is the one that all later calls name."""
        request = task_pb2.RegisterRequest(
            worker_id=self._identity.worker_id,
            instance=self._identity.instance,
            host=self._identity.host,
            pid=self._identity.pid,
            metrics_port=metrics_port,
        )
        reply = self._call("Register", lambda: self._tasks.Register(request, timeout=self._timeout))
        self.incarnation = reply.incarnation
        # A new one: what is still heard of the former master counts for nothing here.
        self._log_index = LogIndex()
        return reply

    def ready(self, model: task_pb2.ModelDescription) -> task_pb2.ReadyReply:
        request = task_pb2.ReadyRequest(
            worker_id=self._identity.worker_id,
            instance=self._identity.instance,
            incarnation=self.incarnation,
            model=model,
        )
        reply = self._call(
            "Ready", lambda: self._tasks.Ready(request, timeout=self._settings.ready_timeout_s)
        )
        self.layout_fingerprint = reply.layout_fingerprint
        self._find_servers(reply.servers, model)
        return reply

    def _find_servers(
        self, servers: Sequence[task_pb2.ParameterServer], model: task_pb2.ModelDescription
    ) -> None:
        """From now on parameters come from these; from the master, if there are none."""
        self._parameters.close()
        if servers:
            coordinator = CoordinatorStub(self._channel, self._settings.master)
            self._parameters = ParameterServerClient(coordinator, servers, model, self._log_index)
        else:
            self._parameters = ParametersStub(self._channel, self._settings.master)

    # --- tasks -----------------------------------------------------------------------------

    def lease(self, prefetched: int, incarnation: str) -> task_pb2.LeaseReply:
        """Ask for a task; ``incarnation`` is the one whose tasks the caller is there for."""
        wait_s = self._settings.task_wait_s
        log_index = self._log_index
        request = task_pb2.LeaseRequest(
            worker_id=self._identity.worker_id,
            instance=self._identity.instance,
            incarnation=incarnation,
            wait_s=wait_s,
            prefetched=prefetched,
        )
        reply = self._call(
            "Lease", lambda: self._tasks.Lease(request, timeout=wait_s + self._timeout)
        )
        log_index.advance(reply.log_index)
        return reply

    def complete(self, request: task_pb2.CompleteRequest) -> None:
        request.worker_id = self._identity.worker_id
        request.incarnation = self.incarnation
        self._call("Complete", lambda: self._tasks.Complete(request, timeout=self._timeout))

    def fail(
        self, error: EdlError, *, lease: task_pb2.LeaseRef | None = None, permanent: bool
    ) -> None:
        """Report that a task, or without one that this worker itself, has failed."""
        request = task_pb2.FailRequest(
            worker_id=self._identity.worker_id,
            instance=self._identity.instance,
            incarnation=self.incarnation,
            lease=lease,
            error=error.to_proto(),
            permanent=permanent,
        )
        self._call("Fail", lambda: self._tasks.Fail(request, timeout=self._timeout))

    def give_back(
        self, leases: Iterable[task_pb2.LeaseRef], reason: str, *, leaving: bool, within_s: float
    ) -> None:
        """Hand leases back undone; tried for ``within_s`` at most, also while leaving."""
        request = task_pb2.ReturnRequest(
            worker_id=self._identity.worker_id,
            incarnation=self.incarnation,
            leases=leases,
            reason=reason,
            leaving=leaving,
        )
        deadline = time.monotonic() + within_s

        def attempt() -> task_pb2.ReturnReply:
            left_s = max(0.05, deadline - time.monotonic())
            return self._tasks.Return(request, timeout=left_s)

        self._call("Return", attempt, give_up_after_s=within_s, stop_when_leaving=False)

    def heartbeat(self, counters: dict[str, float], stacks: str = "") -> task_pb2.HeartbeatReply:
        """One heartbeat, tried once: the next one comes soon enough.

        Raises:
            grpc.RpcError: the master cannot be reached.
        """
        request = task_pb2.HeartbeatRequest(
            worker_id=self._identity.worker_id,
            instance=self._identity.instance,
            incarnation=self.incarnation,
            leases=self._state.leases(),
            phase=self._state.phase,
            counters=counters,
            stacks=stacks,
        )
        try:
            return self._tasks.Heartbeat(request, timeout=self._timeout)
        except grpc.RpcError as error:
            self._raise_known(error)
            raise

    # --- parameters ------------------------------------------------------------------------

    def initialize(self, values: memoryview) -> parameters_pb2.InitializeReply:
        header = parameters_pb2.InitializeHeader(
            worker_id=self._identity.worker_id,
            incarnation=self.incarnation,
            layout_fingerprint=self.layout_fingerprint,
            nbytes=values.nbytes,
        )
        timeout_s = self._stream_timeout(values.nbytes)
        return self._call(
            "Initialize", lambda: self._parameters.initialize(header, values, timeout_s)
        )

    def pull(
        self,
        buffer: Callable[[int], memoryview],
        nbytes: int,
        *,
        have_version: int | None = None,
        frozen: str = "",
        permit_for: task_pb2.LeaseRef | None = None,
        rows: Sequence[parameters_pb2.TableRows] = (),
        ids: memoryview = _NOTHING,
        rows_buffer: Callable[[int], memoryview] = _refuse,
        precision: job_pb2.WirePrecision.ValueType = job_pb2.FLOAT32,
    ) -> parameters_pb2.PullReply:
        """Fetch parameters; ``nbytes`` is how many may come, for the deadline.

        Args:
            rows: rows of embedding tables to fetch too.
            ids: their ids.
            rows_buffer: where they are received.
            precision: that values and rows should travel in.
        """
        wait_s = self._settings.slot_wait_s if permit_for is not None else 0.0
        header = parameters_pb2.PullHeader(
            worker_id=self._identity.worker_id,
            incarnation=self.incarnation,
            layout_fingerprint=self.layout_fingerprint,
            have_version=have_version,
            frozen=frozen,
            permit_for=permit_for,
            wait_s=wait_s,
            rows=rows,
            precision=precision,
        )
        timeout_s = wait_s + self._stream_timeout(nbytes)
        return self._call(
            "Pull", lambda: self._parameters.pull(header, buffer, timeout_s, ids, rows_buffer)
        )

    def push(
        self,
        header: parameters_pb2.PushHeader,
        payloads: tuple[memoryview, ...],
        buffer: Callable[[int], memoryview],
        nbytes: int,
        rows_buffer: Callable[[int], memoryview] = _refuse,
    ) -> parameters_pb2.PushReply:
        """Push one minibatch; fields that name worker and master are filled in here."""
        header.worker_id = self._identity.worker_id
        header.incarnation = self.incarnation
        header.layout_fingerprint = self.layout_fingerprint
        wait_s = 0.0
        if header.HasField("next"):
            wait_s = header.next.wait_s = self._settings.slot_wait_s
        timeout_s = wait_s + self._stream_timeout(nbytes)
        return self._call(
            "Push",
            lambda: self._parameters.push(header, payloads, buffer, timeout_s, rows_buffer),
        )

    def put_rows(self, table: int, ids: memoryview, rows: memoryview) -> bool:
        """Give rows initial values; False if there are initial values already."""
        header = parameters_pb2.PutRowsHeader(
            worker_id=self._identity.worker_id,
            incarnation=self.incarnation,
            layout_fingerprint=self.layout_fingerprint,
            rows=parameters_pb2.TableRows(table=table, count=ids.nbytes // 8),
        )
        timeout_s = self._settings.ready_timeout_s + self._stream_timeout(rows.nbytes)
        return self._call(
            "PutRows", lambda: self._parameters.put_rows(header, (ids, rows), timeout_s)
        ).accepted

    def scan_rows(
        self, frozen: str, table: int, dim: int, cursor: int, most: int
    ) -> tuple[parameters_pb2.ScanRowsReply, memoryview, memoryview]:
        """Some of the rows of a frozen version."""
        header = parameters_pb2.ScanRowsHeader(
            worker_id=self._identity.worker_id,
            incarnation=self.incarnation,
            layout_fingerprint=self.layout_fingerprint,
            frozen=frozen,
            table=table,
            cursor=cursor,
            most=most,
        )
        timeout_s = self._stream_timeout(most * (8 + 4 * dim))
        return self._call("ScanRows", lambda: self._parameters.scan_rows(header, dim, timeout_s))

    # --- inside ----------------------------------------------------------------------------

    @property
    def _timeout(self) -> float:
        return self._settings.call_timeout_s

    def _stream_timeout(self, nbytes: int) -> float:
        return self._timeout + 2 * nbytes / self._settings.slowest_bytes_per_s

    def _call(
        self,
        name: str,
        attempt: Callable[[], T],
        *,
        give_up_after_s: float | None = None,
        stop_when_leaving: bool = True,
    ) -> T:
        """Try a call until it is answered, or who should answer has been away for too long."""
        give_up_after_s = (
            self._settings.master_wait_s if give_up_after_s is None else give_up_after_s
        )
        failing_since = 0.0
        missed: ParameterServerLostError | None = None
        for delay_s in backoff.delays(random.random):
            started = time.monotonic()
            try:
                reply = attempt()
            except ParameterServerLostError as error:
                cause, silent = str(error), error
                longest_s = min(give_up_after_s, self._settings.server_wait_s)
            except (grpc.RpcError, FrameError) as error:
                cause, silent = self._passing_cause(name, error), None
                longest_s = give_up_after_s
            else:
                if failing_since:
                    log.info("%s is answered again", name)
                return reply
            now = time.monotonic()
            if not failing_since or (silent is None) != (missed is None):
                # The one came back, and the other is gone: it has a patience of its own.
                failing_since, missed = started, silent
                whom = "" if silent else f" from the master at {self._settings.master}"
                log.warning(
                    "no answer to %s%s (%s); trying for %.0f s", *(name, whom, cause, longest_s)
                )
            if now + delay_s - failing_since > longest_s:
                if silent is not None:
                    lost = self._server_lost(now - failing_since, silent)
                    departure = Departure(f"parameter-server-{silent.number}-lost", lost)
                else:
                    lost = self.lost(now - failing_since, cause)
                    departure = Departure("master-lost", lost, tell=False)
                if not stop_when_leaving:
                    raise lost
                self._state.leave(departure)
            if stop_when_leaving:
                self._state.sleep(delay_s)
            else:
                time.sleep(delay_s)
        raise AssertionError("delays never end")

    def _passing_cause(self, name: str, error: Exception) -> str:
        """What a failure that will pass looks like; any other one is raised."""
        if isinstance(error, FrameError):
            return str(error)
        assert isinstance(error, grpc.RpcError)
        self._raise_known(error)
        code, details = error.code(), error.details()
        if code in PASSING:
            return f"{code.name}: {details}"
        raise EdlError(
            error_pb2.INTERNAL,
            f"the master refused {name} with {code.name}: {details}",
            where=f"master at {self._settings.master}",
            remedy="Client, master and worker must be of one version of edl; if they are, "
            "this is an internal error of edl.",
        ) from error

    @staticmethod
    def _raise_known(error: grpc.RpcError) -> None:
        known = EdlError.from_rpc(error)
        if known is None:
            return
        if known.code == error_pb2.STALE_INCARNATION:
            raise MasterReplacedError(known.what) from None
        raise known from None

    def _server_lost(self, seconds: float, error: ParameterServerLostError) -> EdlError:
        return EdlError(
            error_pb2.PARAMETER_SERVER_LOST,
            f"parameter server {error.number} could not be reached for {seconds:.0f} s"
            f" ({error.cause}), though the master could",
            where=f"worker {self._identity.worker_id} on {self._identity.host}, "
            f"parameter server at {error.address}",
            remedy="Look at the network between the two; the task has gone back to the master, and"
            " another instance is started.",
        )

    def lost(self, seconds: float, cause: str) -> EdlError:
        """The error that tells that the master could not be reached for so long."""
        return EdlError(
            error_pb2.MASTER_LOST,
            f"the job's master could not be reached for {seconds:.0f} s ({cause})",
            where=f"worker {self._identity.worker_id} on {self._identity.host}, "
            f"master at {self._settings.master}",
            remedy="See the master's log for why it ended; the job's directory has it as "
            "logs/master.log. EDL_MASTER_WAIT_S sets how long workers wait.",
        )
