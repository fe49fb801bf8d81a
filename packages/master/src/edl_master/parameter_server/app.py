"""The composition root of a parameter server: follows the master, serves workers."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from edl_master import codec
from edl_master.adapters.buffer_pool import BufferPool
from edl_master.adapters.checkpoint_files import PLANE, Checkpoint
from edl_master.adapters.checkpoints import part_path, write_part
from edl_master.control.executors import SerialExecutor
from edl_master.core.parameters import quantization
from edl_master.core.parameters.arithmetic import kernel
from edl_master.core.parameters.following import Follower, Kept
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.plane import ParameterPlane
from edl_master.core.parameters.sharding import cut, for_part, recut, sums_between
from edl_master.metrics import Metrics
from edl_master.parameter_server.guarded import GuardedFollower
from edl_master.parameter_servers import command_codec
from edl_master.recovery import restore
from edl_master.server import PartServer
from edl_master.servicers.parts import PartsServicer
from edl_proto.errors import EdlError
from edl_proto.transport import channels
from edl_proto.transport.row_placement import server_of
from edl_proto.v1 import error_pb2, servers_pb2, servers_pb2_grpc

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1

_REPORT_S = 10.0
"""Deadline of a report: the master is on this machine, or near."""

_INSIST_S = 120.0
"""How long what the master waits for is told again. One that is frozen is killed before that."""

_SPEAK_EVERY_S = 0.5
"""How often a server says that it is alive; the master waits for many of these."""

_WRITTEN_S = 60.0
"""How long the last part may take to be written when there are no more orders."""


class App:
    """One parameter server.

    Args:
        master: host:port of the master.
        server: number of this one.
        incarnation: of the master.
        host: address to listen on.
    """

    def __init__(self, master: str, server: int, incarnation: str, host: str) -> None:
        self._server = server
        self._incarnation = incarnation
        self._job = ""
        self._over = threading.Event()
        self._channel = channels.connect(master)
        self._master = servers_pb2_grpc.ServersStub(self._channel)
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="plane")
        buffers, metrics = BufferPool(), Metrics()
        self._buffers = buffers
        self._follower = GuardedFollower(buffers, self._threads)
        self._writing = SerialExecutor("parts", self._fail)
        servicer = PartsServicer(self._follower, buffers, metrics, incarnation)
        self._serving = PartServer(servicer, host)
        self._address = f"{host}:{self._serving.port}"

    def end_with_parent(self, pipe: int) -> None:
        """End when the other end of a pipe is closed: the master is gone, however it went.

        On Linux the kernel ends this process then, even if it is frozen and could not read.
        """
        if sys.platform == "linux":
            # The master starts its servers in its main thread, whose end is meant here.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        def watch() -> None:
            while os.read(pipe, 1):
                pass
            log.info("the master is gone")
            os._exit(0)

        threading.Thread(target=watch, name="parent", daemon=True).start()

    def run(self) -> int:
        """Carry out orders until there are no more; return the exit code."""
        request = servers_pb2.FollowRequest(
            server=self._server, incarnation=self._incarnation, address=self._address
        )
        log.info("parameter server %d listens on %s", self._server, self._address)
        threading.Thread(target=kernel, args=("accumulate",), daemon=True).start()
        threading.Thread(target=self._speak, name="speak", daemon=True).start()
        try:
            for order in self._master.Follow(request, wait_for_ready=True):
                self._take(order)
        except grpc.RpcError as error:
            log.error("no more orders come: %s", error)
            return 1
        except Exception as error:
            log.exception("parameter server %d cannot go on", self._server)
            self._fail(error)
            return 1
        self._over.set()
        self._follower.let_go()
        self._writing.close(_WRITTEN_S)
        self._serving.close()
        return 0

    def _speak(self) -> None:
        while not self._over.wait(_SPEAK_EVERY_S):
            report = servers_pb2.ServerReport()
            # Not waited for: an update may take longer than the master waits for a word.
            if (tables := self._follower.tables()) is not None and tables.rows:
                report.tables.rows.update(tables.rows)
                report.tables.nbytes = tables.nbytes
            self._report(report)
            self._buffers.trim(time.monotonic())

    def _take(self, order: servers_pb2.Order) -> None:
        if order.HasField("begin"):
            self._begin(order.begin)
            return
        kept = self._follower.carry_out(command_codec.order_from(order))
        if kept is not None and kept.order.place:
            self._writing.submit(lambda: self._write(kept))

    def _begin(self, begin: servers_pb2.Begin) -> None:
        self._job = begin.job.name
        model = command_codec.model_from(begin)
        optimizer = parse_optimizer(json.loads(begin.model.optimizer_json))
        mode = command_codec.mode_from(begin)
        part = cut(model, begin.servers, optimizer, mode)[self._server]

        def mine(ids: Array) -> Array:
            here: Array = server_of(ids, begin.servers) == self._server
            return here

        fitting = for_part(optimizer, part.layout)
        if begin.restore_from:
            parts = restore.parts_of(Path(begin.restore_from))
            saved = recut(parts, model, part, optimizer, mine)
            plane = ParameterPlane.restore(
                saved,
                fitting,
                mode,
                layout=part.layout,
                executor=self._threads,
                check_finite=False,
            )
        else:
            plane = ParameterPlane(
                part.layout, fitting, mode, executor=self._threads, check_finite=False
            )
        quantization.warm_up(codec.precision_from(begin.job.training.wire_precision))
        shares = sums_between(model, begin.servers, optimizer, mode) > 0
        self._follower.begin(Follower(plane, shares), model.fingerprint)
        log.info("bytes %d to %d of the parameters are served here", part.start, part.stop)

    def _write(self, kept: Kept) -> None:
        started = time.monotonic()
        path = part_path(Path(kept.order.place), self._job, kept.order.label, self._server)
        write_part(path, self._job, Checkpoint({PLANE: kept.snapshot.meta}, kept.snapshot.arrays))
        seconds = time.monotonic() - started
        self._insist(servers_pb2.ServerReport(kept=kept.order.label, seconds=seconds))

    def _fail(self, error: Exception) -> None:
        told = error
        if not isinstance(told, EdlError):
            log.error("an internal error of edl", exc_info=error)
            told = EdlError(
                error_pb2.INTERNAL,
                f"parameter server {self._server} failed: {type(error).__name__}: {error}",
                where=f"parameter server {self._server}",
                remedy=f"This is an internal error; server-{self._server}.log has the traceback.",
            )
        self._insist(servers_pb2.ServerReport(failed=told.to_proto()))

    def _insist(self, report: servers_pb2.ServerReport) -> None:
        """Report what the master waits for: it may be held up for longer than one call lasts."""
        until = time.monotonic() + _INSIST_S
        while not self._report(report) and time.monotonic() < until:
            time.sleep(_SPEAK_EVERY_S)

    def _report(self, report: servers_pb2.ServerReport) -> bool:
        """Tell the master; say whether it has heard, or is another one by now."""
        report.server = self._server
        report.incarnation = self._incarnation
        try:
            self._master.Report(report, timeout=_REPORT_S)
        except grpc.RpcError as error:
            log.warning("the master did not hear a report: %s", error.code())
            known = EdlError.from_rpc(error)
            return known is not None and known.code == error_pb2.STALE_INCARNATION
        return True
