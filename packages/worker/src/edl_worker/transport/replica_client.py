"""Adapter to the master's service Replicas."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from edl_proto.v1 import replicas_pb2_grpc
from edl_worker.codec import replicas as codec
from edl_worker.core.replicas import Holding, JoinAnswer, ReplicaStep, Report, ReportAnswer
from edl_worker.transport.master_connection import MasterConnection, raise_reported


class ReplicaClient:
    """A client of the replica group; methods raise as those of ``TaskClient``.

    Args:
        connection: to the master.
        address: at which peers reach this worker; empty where they need none.
    """

    def __init__(self, connection: MasterConnection, address: str) -> None:
        self._connection = connection
        self._address = address
        self._settings = connection.settings
        self._stub = replicas_pb2_grpc.ReplicasStub(connection.channel)
        self._fingerprint = ""

    @property
    def incarnation(self) -> str:
        """The incarnation of the master with which this worker has registered last."""
        return self._connection.incarnation

    @property
    def worker_id(self) -> int:
        """The number of this worker."""
        return self._connection.identity.worker_id

    def open(self, layout_fingerprint: str) -> None:
        """Name this layout of the values from now on."""
        self._fingerprint = layout_fingerprint

    def join(
        self, after: int, holding: Holding | None = None, steps: Sequence[ReplicaStep] = ()
    ) -> JoinAnswer:
        """Ask for a generation later than this one; wait for it, but not for long.

        Args:
            after: number of a generation.
            holding: what this worker has from an earlier master.
            steps: for which this master has asked.
        """
        wait_s, timeout_s = self._settings.task_wait_s, self._settings.call_timeout_s
        return self._connection.call(
            "Join", lambda: self._join(after, wait_s, timeout_s, holding, steps)
        )

    def join_while_leaving(self, after: int, within_s: float) -> JoinAnswer:
        """Ask whether this worker may end, or what it has to do before that."""
        wait_s = min(self._settings.task_wait_s, within_s / 2)
        return self._connection.call_while_leaving(
            "Join", lambda left_s: self._join(after, wait_s, left_s), within_s
        )

    def _join(
        self,
        after: int,
        wait_s: float,
        timeout_s: float,
        holding: Holding | None = None,
        steps: Sequence[ReplicaStep] = (),
    ) -> JoinAnswer:
        connection = self._connection
        request = codec.encode_join(
            connection.identity,
            incarnation=connection.incarnation,
            layout_fingerprint=self._fingerprint,
            after=after,
            wait_s=wait_s,
            address=self._address,
            holding=holding,
            steps=steps,
        )
        reply = self._stub.Join(request, timeout=wait_s + timeout_s)
        return codec.decode_join(reply, request.incarnation)

    def report(self, incarnation: str, report: Report) -> ReportAnswer:
        """Send one report, without a second attempt: the next one comes soon enough.

        Raises:
            grpc.RpcError: the master cannot be reached.
        """
        request = codec.encode_report(self._connection.identity, incarnation, report)
        try:
            reply = self._stub.Report(request, timeout=self._settings.call_timeout_s)
        except grpc.RpcError as error:
            raise_reported(error)
            raise
        return codec.decode_report(reply)
