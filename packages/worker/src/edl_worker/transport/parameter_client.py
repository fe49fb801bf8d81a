"""Adapter to the parameter plane of a job, at the master or at parameter servers."""

from __future__ import annotations

from collections.abc import Callable

from edl_proto.transport.parameters import CoordinatorStub, ParametersStub
from edl_proto.transport.tcp import FrameError
from edl_proto.v1 import parameters_pb2
from edl_worker import codec
from edl_worker.core.exchange import ParameterReply, PullRequest, PushReply, PushRequest, RowPage
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.registration import JobAdmission
from edl_worker.transport.master_connection import MasterConnection
from edl_worker.transport.parameter_servers import ParameterServerClient

_NOTHING = memoryview(b"")

Buffer = Callable[[int], memoryview]
"""Gives memory for so many bytes that are about to be received."""


def refuse_rows(nbytes: int) -> memoryview:
    """The buffer of a request that asks for no rows."""
    raise FrameError(f"{nbytes} bytes of rows came without being requested")


class ParameterClient:
    """Pushes gradients and pulls parameters and rows.

    Methods raise as those of ``TaskClient``. A method may run in another thread than the last
    one did, but not at the same time.
    """

    def __init__(self, connection: MasterConnection) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._stub: ParametersStub | ParameterServerClient
        self._stub = ParametersStub(connection.channel, connection.settings.master)
        self._layout_fingerprint = ""

    def close(self) -> None:
        self._stub.close()

    def open(self, admission: JobAdmission, model: ModelDescription) -> None:
        """Use the parameter servers that the admission names; the master, if it names none."""
        self._stub.close()
        self._layout_fingerprint = admission.layout_fingerprint
        channel, master = self._connection.channel, self._settings.master
        if admission.shards:
            coordinator, log_index = CoordinatorStub(channel, master), self._connection.log_index
            self._stub = ParameterServerClient(coordinator, admission.shards, model, log_index)
        else:
            self._stub = ParametersStub(channel, master)

    def initialize(self, values: memoryview) -> bool:
        """Offer initial values; False if another worker's values were first."""
        header = parameters_pb2.InitializeHeader(
            worker_id=self._connection.identity.worker_id,
            incarnation=self._connection.incarnation,
            layout_fingerprint=self._layout_fingerprint,
            nbytes=values.nbytes,
        )
        timeout_s = self._connection.transfer_timeout_s(values.nbytes)
        return self._connection.call(
            "Initialize", lambda: self._stub.initialize(header, values, timeout_s)
        ).accepted

    def pull(
        self,
        request: PullRequest,
        buffer: Buffer,
        nbytes: int,
        ids: memoryview = _NOTHING,
        rows_buffer: Buffer = refuse_rows,
    ) -> ParameterReply:
        """Fetch parameters and rows.

        Args:
            buffer: memory for the values.
            nbytes: most bytes that may come, for the deadline.
            ids: int64, the ids of all requested rows, table by table.
            rows_buffer: memory for the rows.
        """
        header = codec.encode_pull(request)
        header.worker_id = self._connection.identity.worker_id
        header.incarnation = self._connection.incarnation
        header.layout_fingerprint = self._layout_fingerprint
        header.wait_s = self._settings.permit_wait_s if request.permit_for is not None else 0.0
        timeout_s = header.wait_s + self._connection.transfer_timeout_s(nbytes)
        reply = self._connection.call(
            "Pull", lambda: self._stub.pull(header, buffer, timeout_s, ids, rows_buffer)
        )
        return codec.decode_pull(reply)

    def push(
        self,
        request: PushRequest,
        payloads: tuple[memoryview, ...],
        buffer: Buffer,
        nbytes: int,
        rows_buffer: Buffer = refuse_rows,
    ) -> PushReply:
        """Push one gradient.

        Args:
            payloads: gradient, state differences, ids of rows, ids of the next rows, gradients of
                rows.
            buffer, nbytes, rows_buffer: as in ``pull``; ``nbytes`` counts the payloads too.
        """
        header = codec.encode_push(request)
        header.worker_id = self._connection.identity.worker_id
        header.incarnation = self._connection.incarnation
        header.layout_fingerprint = self._layout_fingerprint
        wait_s = 0.0
        if request.wants_values:
            wait_s = header.next.wait_s = self._settings.permit_wait_s
        timeout_s = wait_s + self._connection.transfer_timeout_s(nbytes)
        reply = self._connection.call(
            "Push", lambda: self._stub.push(header, payloads, buffer, timeout_s, rows_buffer)
        )
        return codec.decode_push(reply)

    def put_rows(self, table: int, ids: memoryview, rows: memoryview) -> bool:
        """Give rows initial values; False if the plane has initial values already."""
        header = parameters_pb2.PutRowsHeader(
            worker_id=self._connection.identity.worker_id,
            incarnation=self._connection.incarnation,
            layout_fingerprint=self._layout_fingerprint,
            rows=parameters_pb2.TableRows(table=table, count=ids.nbytes // 8),
        )
        timeout_s = self._settings.ready_timeout_s + self._connection.transfer_timeout_s(
            rows.nbytes
        )
        return self._connection.call(
            "PutRows", lambda: self._stub.put_rows(header, (ids, rows), timeout_s)
        ).accepted

    def scan_rows(self, frozen: str, table: int, dim: int, cursor: int, most: int) -> RowPage:
        """Read some rows of a frozen version.

        Args:
            dim: numbers of a row.
            cursor: 0, or that of the last page.
            most: rows of a page, at most.
        """
        header = parameters_pb2.ScanRowsHeader(
            worker_id=self._connection.identity.worker_id,
            incarnation=self._connection.incarnation,
            layout_fingerprint=self._layout_fingerprint,
            frozen=frozen,
            table=table,
            cursor=cursor,
            most=most,
        )
        timeout_s = self._connection.transfer_timeout_s(most * (8 + 4 * dim))
        reply, ids, rows = self._connection.call(
            "ScanRows", lambda: self._stub.scan_rows(header, dim, timeout_s)
        )
        return RowPage(ids, rows, reply.cursor, reply.more)
