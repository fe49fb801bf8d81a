"""Access rules: the one table of who may call which method, for every port of a job.

What is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError, Message

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Identity, Role
from edl_proto.v1 import parameters_pb2, servers_pb2


@dataclass(frozen=True, slots=True)
class AccessRule:
    """The rule of one method.

    Attributes:
        roles: the roles that may call it.
        own: the field of the request that has to be the caller's number; empty: none.
        header: the message in the first frame of a raw method; None: the request is the message.
    """

    roles: frozenset[Role]
    own: str = ""
    header: type[Message] | None = None


def _only(*roles: Role, own: str = "") -> AccessRule:
    return AccessRule(frozenset(roles), own)


def _raw(
    service: str, headers: Mapping[str, type[Message]], *others: Role
) -> dict[str, AccessRule]:
    """The rules of a service of raw methods; each header has ``worker_id``.

    Workers make these calls; others may connect too, for methods that have rules of their own.
    """
    workers = frozenset((Role.WORKER,))
    rules = {name: AccessRule(workers, "worker_id", header) for name, header in headers.items()}
    return {f"/edl.v1.{service}/{name}": rule for name, rule in rules.items()} | {
        f"/edl.v1.{service}/Open": _only(Role.WORKER, *others)
    }


_WORKER = _only(Role.WORKER, own="worker_id")
_SERVER = _only(Role.SERVER, own="server")
_CONTROL = _only(Role.CLIENT)
_READERS = _only(Role.CLIENT, Role.VIEWER)

RULES: Mapping[str, AccessRule] = {
    "/edl.v1.Job/GetStatus": _READERS,
    "/edl.v1.Job/WatchEvents": _READERS,
    "/edl.v1.Job/ReadTimeline": _READERS,
    "/edl.v1.Job/Scale": _CONTROL,
    "/edl.v1.Job/SetLearningRate": _CONTROL,
    "/edl.v1.Job/Stop": _CONTROL,
    "/edl.v1.Job/Acknowledge": _CONTROL,
    "/edl.v1.Tasks/Register": _WORKER,
    "/edl.v1.Tasks/Ready": _WORKER,
    "/edl.v1.Tasks/Lease": _WORKER,
    "/edl.v1.Tasks/Complete": _WORKER,
    "/edl.v1.Tasks/Fail": _WORKER,
    "/edl.v1.Tasks/Return": _WORKER,
    "/edl.v1.Tasks/Heartbeat": _WORKER,
    "/edl.v1.Tasks/WriteProfile": _WORKER,
    "/edl.v1.Replicas/Join": _WORKER,
    "/edl.v1.Replicas/Report": _WORKER,
    "/edl.v1.Servers/Report": _SERVER,
    "/edl.v1.Servers/WritePart": _SERVER,
    "/edl.v1.Servers/ReadCheckpoint": _SERVER,
    **_raw(
        "Parameters",
        {
            "Initialize": parameters_pb2.InitializeHeader,
            "Pull": parameters_pb2.PullHeader,
            "Push": parameters_pb2.PushHeader,
            "PutValues": parameters_pb2.PutValuesHeader,
            "PutRows": parameters_pb2.PutRowsHeader,
            "ScanRows": parameters_pb2.ScanRowsHeader,
        },
    ),
    **_raw(
        "Shard",
        {
            "Propose": parameters_pb2.ProposeHeader,
            "Prepare": parameters_pb2.PrepareHeader,
            "Read": parameters_pb2.ReadHeader,
            "PutRows": parameters_pb2.PutRowsHeader,
            "ScanRows": parameters_pb2.ScanRowsHeader,
        },
    ),
    **_raw(
        "Coordinator",
        {
            "CommitInitialValues": parameters_pb2.CommitInitialValuesRequest,
            "Commit": parameters_pb2.CommitRequest,
            "Permit": parameters_pb2.PermitRequest,
        },
        Role.SERVER,
    ),
    "/edl.v1.Coordinator/Follow": AccessRule(
        frozenset((Role.SERVER,)), "server", servers_pb2.FollowRequest
    ),
    "/grpc.health.v1.Health/Check": _READERS,
    "/grpc.health.v1.Health/List": _READERS,
    "/grpc.health.v1.Health/Watch": _READERS,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _CONTROL,
}


def check(method: str, caller: Identity, request: Any) -> None:
    """Refuse a call that its caller may not make.

    Args:
        method: as ``/service/method``.
        caller: the proved identity of the caller.
        request: the message; of a raw method the bytes of its header.

    Raises:
        EdlError: FORBIDDEN.
    """
    rule = RULES.get(method)
    if rule is None or caller.role not in rule.roles:
        raise _forbidden(method, caller, "")
    if not rule.own:
        return
    if rule.header is not None:
        try:
            request = rule.header.FromString(request)
        except DecodeError:
            raise _forbidden(method, caller, " with a header that cannot be read") from None
    if (named := getattr(request, rule.own)) != caller.number:
        raise _forbidden(method, caller, f" for number {named}")


def _forbidden(method: str, caller: Identity, how: str) -> EdlError:
    return EdlError(
        ErrorCode.FORBIDDEN,
        f"{caller.name} of job {caller.job} may not call {method.rpartition('/')[2]}{how}",
        where=method,
        remedy="Only the job's own processes may call this, each for itself. To control a job, use "
        "edl stop, edl scale and edl status.",
    )
