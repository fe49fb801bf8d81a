"""The composition root of a parameter server: applies the command log, serves workers."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from edl_master import codec
from edl_master.adapters.buffer_pool import BufferPool
from edl_master.adapters.checkpoint_files import PLANE, Checkpoint
from edl_master.adapters.checkpoints import part_path, write_part
from edl_master.config.optimizer_plugins import find_installed_rule
from edl_master.control.executors import SerialExecutor
from edl_master.core.parameters import quantization
from edl_master.core.parameters.arithmetic import kernel
from edl_master.core.parameters.layout import Array
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.shard import Shard, ShardSnapshot
from edl_master.core.parameters.shard_layout import (
    reshard,
    shard_layouts,
    shard_optimizer,
    shared_sum_count,
)
from edl_master.core.parameters.statistics import ServerStatistics
from edl_master.core.parameters.store import ParameterStore
from edl_master.metrics.instruments import Metrics
from edl_master.parameter_server.remote_files import RemoteFiles
from edl_master.parameters.locked_shard import MAX_WAIT_S, LockedShard
from edl_master.recovery import restore
from edl_master.server import ShardServer
from edl_master.server_group import command_codec, report_codec
from edl_master.servicers.payloads import PayloadTransfer
from edl_master.servicers.shard import ShardServicer
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.transport.direct_connection import FrameError
from edl_proto.transport.parameters import CoordinatorStub
from edl_proto.transport.row_placement import server_of
from edl_proto.v1 import servers_pb2, servers_pb2_grpc
from edl_runtime.monitoring import logs
from edl_runtime.monitoring.process_usage import usage_of_this_process

log = logging.getLogger(__name__)


_REPORT_S = 10.0
"""Deadline of a report: the master is on this machine, or near."""

_REPORT_RETRY_S = 120.0
"""How long a report that the master waits for is sent again. A frozen server is killed before."""

_HEARTBEAT_INTERVAL_S = 0.5
"""How often a server says that it is alive; the master waits for many of these."""

_WRITTEN_S = 60.0
"""How long the last part may take to be written when there are no more commands."""


class App:
    """One parameter server.

    Args:
        master: host:port of the master.
        server: number of this one.
        incarnation: of the master.
        host: address to listen on.
        ports: of gRPC and of direct calls; 0 for any.
        scratch: an empty directory for files on their way from and to the master; None: this
            process sees the master's files.
        identity: file by which this server proves who it is; None: the job is not secured.

    Raises:
        EdlError: FORBIDDEN; the file cannot be used.
    """

    def __init__(
        self,
        master: str,
        server: int,
        incarnation: str,
        host: str,
        ports: tuple[int, int] = (0, 0),
        scratch: Path | None = None,
        identity: Path | None = None,
    ) -> None:
        credentials = Credentials(identity) if identity is not None else None
        self._server = server
        self._incarnation = incarnation
        self._job = ""
        self._over = threading.Event()
        peer = credentials.to(Role.MASTER) if credentials is not None else None
        self._channel = channels.connect(master, peer)
        self._master = servers_pb2_grpc.ServersStub(self._channel)
        self._coordinator = CoordinatorStub(self._channel, master, peer)
        self._files: RemoteFiles | None = None
        if scratch is not None:
            self._files = RemoteFiles(self._master, server, incarnation, scratch)
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="plane")
        self._buffers = BufferPool()
        self._writer = SerialExecutor("snapshots", self._fail)
        self._shard = LockedShard(self._buffers, self._write_later, lambda error: None, MAX_WAIT_S)
        self._metrics = Metrics()
        transfer = PayloadTransfer(self._buffers, self._metrics)
        servicer = ShardServicer(self._shard, transfer, incarnation)
        access_control = AccessControl(credentials) if credentials is not None else None
        self._serving = ShardServer(servicer, host, *ports, access_control)
        shown = f"[{host}]" if ":" in host else host
        self._address = f"{shown}:{self._serving.port}"

    def run(self) -> int:
        """Apply commands until there are no more; return the exit code."""
        request = servers_pb2.FollowRequest(
            server=self._server, incarnation=self._incarnation, address=self._address
        )
        log.info("parameter server %d listens on %s", self._server, self._address)
        threading.Thread(target=kernel, args=("accumulate",), name="compile", daemon=True).start()
        threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True).start()
        try:
            for entry in self._coordinator.follow(request):
                self._take(entry)
        except (grpc.RpcError, FrameError) as error:
            log.error("the stream of the command log ended: %s", error)
            return 1
        except Exception as error:
            log.exception("parameter server %d failed", self._server)
            self._fail(error)
            return 1
        self._over.set()
        self._shard.end_waits()
        self._writer.close(_WRITTEN_S)
        self._serving.close()
        return 0

    def _send_heartbeats(self) -> None:
        while not self._over.wait(_HEARTBEAT_INTERVAL_S):
            report = servers_pb2.ServerReport(
                statistics=report_codec.statistics_to(self._statistics())
            )
            # Without waiting: an update may take longer than the master waits for a report.
            if (tables := self._shard.tables()) is not None and tables.rows:
                report.tables.rows.update(tables.rows)
                report.tables.nbytes = tables.nbytes
            self._report(report)
            self._buffers.trim(time.monotonic())

    def _statistics(self) -> ServerStatistics:
        served, usage = self._metrics.served_so_far(), usage_of_this_process()
        return ServerStatistics(
            received_nbytes=served.received_nbytes,
            sent_nbytes=served.sent_nbytes,
            requests=served.requests,
            requests_s=served.requests_s,
            cpu_s=usage.cpu_s,
            resident_nbytes=usage.resident_nbytes,
        )

    def _take(self, entry: servers_pb2.CommandEntry) -> None:
        if entry.HasField("begin"):
            self._begin(entry.begin)
        else:
            self._shard.apply(command_codec.command_from(entry))

    def _write_later(self, taken: ShardSnapshot) -> None:
        if taken.command.place:
            self._writer.submit(lambda: self._write(taken))

    def _begin(self, begin: servers_pb2.Begin) -> None:
        self._job = begin.job.name
        logs.identify(job=self._job)
        model = command_codec.model_from(begin)
        optimizer = parse_optimizer(json.loads(begin.model.optimizer_json), find_installed_rule)
        mode = command_codec.mode_from(begin)
        part = shard_layouts(model, begin.servers, optimizer, mode)[self._server]

        def is_owned(ids: Array) -> Array:
            here: Array = server_of(ids, begin.servers) == self._server
            return here

        local_optimizer = shard_optimizer(optimizer, part.layout)
        if begin.restore_from:
            folder = self._files.fetch() if self._files else Path(begin.restore_from)
            parts = restore.parts_of(folder)
            saved = reshard(parts, model, part, optimizer, is_owned)
            store = ParameterStore.restore(
                saved, local_optimizer, mode, layout=part.layout, executor=self._threads
            )
        else:
            store = ParameterStore(part.layout, local_optimizer, mode, executor=self._threads)
        store.warm_up()
        quantization.warm_up(codec.precision_from(begin.job.training.wire_precision))
        exchanges_sums = shared_sum_count(model, begin.servers, optimizer, mode) > 0
        self._shard.begin(Shard(store, exchanges_sums), model.fingerprint, is_warm=True)
        log.info("bytes %d to %d of the parameters are served here", part.start, part.stop)

    def _write(self, taken: ShardSnapshot) -> None:
        started = time.monotonic()
        command, snapshot = taken.command, taken.snapshot
        folder = self._files.scratch if self._files else Path(command.place)
        path = part_path(folder, self._job, command.label, self._server)
        write_part(path, self._job, Checkpoint({PLANE: snapshot.meta}, snapshot.arrays))
        if self._files is not None:
            self._files.send(path, command.label, command.place)
        seconds = time.monotonic() - started
        self._report_with_retries(
            servers_pb2.ServerReport(snapshot_written=command.label, seconds=seconds)
        )

    def _fail(self, error: Exception) -> None:
        reported = error
        if not isinstance(reported, EdlError):
            log.error("internal error", exc_info=error)
            reported = EdlError(
                ErrorCode.INTERNAL,
                f"parameter server {self._server} failed: {type(error).__name__}: {error}",
                where=f"parameter server {self._server}",
                remedy=f"This is an internal error; server-{self._server}.log has the traceback.",
            )
        self._report_with_retries(servers_pb2.ServerReport(failed=reported.to_proto()))

    def _report_with_retries(self, report: servers_pb2.ServerReport) -> None:
        """Report what the master waits for, again and again until that succeeds."""
        until = time.monotonic() + _REPORT_RETRY_S
        while not self._report(report) and time.monotonic() < until:
            time.sleep(_HEARTBEAT_INTERVAL_S)

    def _report(self, report: servers_pb2.ServerReport) -> bool:
        """Report to the master; return whether that succeeded, or the master was replaced."""
        report.server = self._server
        report.incarnation = self._incarnation
        try:
            self._master.Report(report, timeout=_REPORT_S)
        except grpc.RpcError as error:
            log.warning("a report to the master has failed: %s", error.code())
            known = EdlError.from_rpc(error)
            return known is not None and known.code == ErrorCode.STALE_INCARNATION
        return True
