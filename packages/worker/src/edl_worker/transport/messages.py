"""Headers and replies that the calls to parameter servers have in common."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from edl_proto.transport.tcp import FrameError
from edl_proto.v1 import parameters_pb2 as pb


def caller_fields(header: Any) -> dict[str, Any]:
    """The fields of a header that name its sender."""
    return {
        "worker_id": header.worker_id,
        "incarnation": header.incarnation,
        "layout_fingerprint": header.layout_fingerprint,
    }


M = TypeVar("M", bound=Message)


def copy_with(header: M, **fields: Any) -> M:
    """A copy of a header with other fields."""
    copy = type(header)()
    copy.CopyFrom(header)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


R = TypeVar("R", pb.PullReply, pb.PushReply)


def with_payload(reply: R, fetched: pb.ReadReply) -> R:
    """The coordinator's answer, with what the servers have sent."""
    reply.nbytes, reply.rows_nbytes = fetched.nbytes, fetched.rows_nbytes
    reply.precision = fetched.precision
    return reply


def exactly(buffer: memoryview, nbytes: int) -> memoryview:
    """The buffer, if it has the size of what comes.

    Raises:
        FrameError: it has another size.
    """
    if buffer.nbytes != nbytes:
        raise FrameError(f"{nbytes} bytes came for a part of {buffer.nbytes}")
    return buffer
