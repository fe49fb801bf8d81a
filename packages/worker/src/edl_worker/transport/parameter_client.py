"""Adapter to the parameter plane of a job, at the master or at parameter servers."""

from __future__ import annotations

from collections.abc import Callable

from edl_proto.transport.direct_connection import FrameError
from edl_proto.transport.parameters import CoordinatorStub
from edl_worker.core.exchange import (
    CallerIdentity,
    ParameterReply,
    PullRequest,
    PushReply,
    PushRequest,
    RowPage,
    ScanRequest,
)
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.registration import JobAdmission
from edl_worker.transport.master_connection import MasterConnection
from edl_worker.transport.master_parameters import MasterParameters
from edl_worker.transport.parameter_servers import ParameterServerClient

PAGE_BYTES = 32 << 20
"""Of rows that one call sends or fetches."""

_NOTHING = memoryview(b"")

Buffer = Callable[[int], memoryview]
"""Gives memory for so many bytes that are about to be received."""


def refuse_rows(nbytes: int) -> memoryview:
    """Return the buffer of a request that asks for no rows."""
    raise FrameError(f"{nbytes} bytes of rows arrived without a request")


class ParameterClient:
    """A client that pushes gradients and pulls parameters and rows.

    Methods raise as those of ``TaskClient``. A method may run in another thread than the last
    one did, but not at the same time.
    """

    def __init__(self, connection: MasterConnection) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._plane: MasterParameters | ParameterServerClient
        self._plane = self._connect_master()
        self._layout_fingerprint = ""

    def close(self) -> None:
        self._plane.close()

    def open(self, admission: JobAdmission, model: ModelDescription) -> None:
        """Use the parameter servers that the admission names; the master, if it names none."""
        self._plane.close()
        self._layout_fingerprint = admission.layout_fingerprint
        connection = self._connection
        if admission.shards:
            self._plane = ParameterServerClient(
                CoordinatorStub(connection.channel, self._settings.master, connection.master),
                admission.shards,
                model,
                connection.log_index,
                connection.credentials,
            )
        else:
            self._plane = self._connect_master()

    def initialize(self, values: memoryview) -> bool:
        """Offer initial values; return False if another worker's values were first."""
        caller = self._caller
        timeout_s = self._connection.transfer_timeout_s(values.nbytes)
        return self._connection.call(
            "Initialize", lambda: self._plane.initialize(caller, values, timeout_s)
        )

    def put_values(self, version: int, values: memoryview) -> bool:
        """Send the values of a replicated model, for which the master has asked.

        This method may run while another one does.

        Returns:
            Whether the master still wanted them.
        """
        caller, plane = self._caller, self._plane
        assert isinstance(plane, MasterParameters), "replicated jobs have no parameter servers"
        timeout_s = self._connection.transfer_timeout_s(values.nbytes)
        return self._connection.call(
            "PutValues", lambda: plane.put_values(caller, version, values, timeout_s)
        )

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
        caller = self._caller
        wait_s = self._settings.permit_wait_s if request.permit_for is not None else 0.0
        timeout_s = wait_s + self._connection.transfer_timeout_s(nbytes)
        buffers = buffer, rows_buffer
        return self._connection.call(
            "Pull", lambda: self._plane.pull(caller, request, ids, buffers, wait_s, timeout_s)
        )

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
        caller = self._caller
        wait_s = self._settings.permit_wait_s if request.wants_values else 0.0
        timeout_s = wait_s + self._connection.transfer_timeout_s(nbytes)
        buffers = buffer, rows_buffer
        return self._connection.call(
            "Push", lambda: self._plane.push(caller, request, payloads, buffers, wait_s, timeout_s)
        )

    def put_rows(self, table: int, ids: memoryview, rows: memoryview) -> bool:
        """Give rows initial values; False if the plane has initial values already."""
        caller = self._caller
        timeout_s = self._settings.ready_timeout_s + self._connection.transfer_timeout_s(
            rows.nbytes
        )
        return self._connection.call(
            "PutRows", lambda: self._plane.put_rows(caller, table, ids, rows, timeout_s)
        )

    def scan_rows(self, request: ScanRequest) -> RowPage:
        """Read some rows of a frozen version."""
        caller = self._caller
        timeout_s = self._connection.transfer_timeout_s(request.most * (8 + 4 * request.dim))
        return self._connection.call(
            "ScanRows", lambda: self._plane.scan_rows(caller, request, timeout_s)
        )

    def _connect_master(self) -> MasterParameters:
        connection = self._connection
        return MasterParameters(connection.channel, self._settings.master, connection.master)

    @property
    def _caller(self) -> CallerIdentity:
        connection = self._connection
        return CallerIdentity(
            connection.identity.worker_id, connection.incarnation, self._layout_fingerprint
        )
