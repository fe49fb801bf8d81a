"""Calls about rows of embedding tables, which every process that has values serves."""

from __future__ import annotations

import time

from edl_master.core.parameters.layout import Layout
from edl_master.parameters import push_codec
from edl_master.parameters.locked_shard import LockedShard
from edl_master.servicers.checks import (
    Caller,
    check_fingerprint,
    check_incarnation,
    check_table,
    rows_nbytes,
)
from edl_master.servicers.payloads import PayloadTransfer, header_of
from edl_proto.transport.frames import Frames, Pieces
from edl_proto.transport.listener import Call
from edl_proto.transport.parameters import MAX_ROW_BYTES
from edl_proto.v1 import parameters_pb2


class RowsServicer:
    """Serves what ``PARAMETERS`` and ``SHARD`` have in common.

    Args:
        shard: the values of this process.
        transfer: receives and sends payloads.
        incarnation: of the master.
    """

    def __init__(self, shard: LockedShard, transfer: PayloadTransfer, incarnation: str) -> None:
        self._shard = shard
        self._transfer = transfer
        self._incarnation = incarnation

    def put_rows(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.PutRowsHeader(), frames)
        layout = self._check(header)
        ids_nbytes, values_nbytes = rows_nbytes([header.rows], layout)
        with self._transfer.buffers.borrow_at_least(ids_nbytes + values_nbytes) as data:
            self._transfer.receive_values(frames, ids_nbytes + values_nbytes, data)
            rows = push_codec.row_payload_from([header.rows], data[:ids_nbytes], data[ids_nbytes:])
            assert rows is not None, "the header names one table"
            accepted = self._shard.put_rows(rows)
        self._transfer.record_duration("put-rows", started)
        yield parameters_pb2.PutRowsReply(accepted=accepted).SerializeToString()

    def scan_rows(self, frames: Frames, call: Call) -> Pieces:
        started = time.perf_counter()
        header = header_of(parameters_pb2.ScanRowsHeader(), frames)
        layout = self._check(header)
        check_table(header.table, layout)
        most = MAX_ROW_BYTES // (8 + layout.tables[header.table].row_nbytes)
        scanned = self._shard.scan_rows(
            header.frozen,
            header.table,
            header.cursor,
            min(max(header.most, 1), most),
            header.log_index,
        )
        self._transfer.record_duration("scan-rows", started)
        reply = parameters_pb2.ScanRowsReply(
            count=scanned.ids.size, cursor=scanned.next or 0, more=scanned.next is not None
        )
        yield reply.SerializeToString()
        yield from self._transfer.send_whole((scanned.ids, scanned.rows))

    def _check(self, header: Caller) -> Layout:
        """Return the layout, if the caller names this incarnation and the same layout."""
        check_incarnation(self._incarnation, header.incarnation)
        layout = self._shard.layout
        check_fingerprint(self._shard.fingerprint, header.layout_fingerprint)
        return layout
