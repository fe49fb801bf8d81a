"""Calls and notes of the members of a replica group."""

from __future__ import annotations

from collections.abc import Sequence

from edl_proto import fields
from edl_proto.v1 import parameters_pb2, replicas_pb2
from edl_worker.codec.tasks import decode_ref, encode_ref
from edl_worker.core.exchange import CallerIdentity
from edl_worker.core.registration import WorkerIdentity
from edl_worker.core.replicas import (
    Claim,
    Generation,
    Holding,
    JoinAnswer,
    Note,
    ReplicaStep,
    Report,
    ReportAnswer,
    VersionOrigin,
)

_STOPS, _GOES_ON = b"\x01", b"\x00"


def encode_join(
    identity: WorkerIdentity,
    *,
    incarnation: str,
    layout_fingerprint: str,
    after: int,
    wait_s: float,
    address: str,
    holding: Holding | None = None,
    steps: Sequence[ReplicaStep] = (),
) -> replicas_pb2.JoinRequest:
    """Return the request for the next generation after a number."""
    return fields.encode(
        replicas_pb2.JoinRequest,
        identity,
        holding=holding and _encode_holding(holding),
        steps=[_encode_step(step) for step in steps],
        incarnation=incarnation,
        layout_fingerprint=layout_fingerprint,
        after=after,
        wait_s=wait_s,
        address=address,
    )


def decode_join(reply: replicas_pb2.JoinReply, incarnation: str) -> JoinAnswer:
    """Return the answer of this incarnation to a request for the next generation."""
    if not reply.HasField("generation"):
        return fields.decode(JoinAnswer, reply, generation=None)
    generation = reply.generation
    counts = {each.lease.token: each.minibatches for each in generation.leases}
    origin = fields.decode(VersionOrigin, generation.origin)
    decoded = fields.decode(
        Generation, generation, counts=counts, incarnation=incarnation, origin=origin
    )
    return fields.decode(JoinAnswer, reply, generation=decoded)


def encode_report(
    identity: WorkerIdentity, incarnation: str, report: Report
) -> replicas_pb2.ReportRequest:
    """Return the report of a member."""
    return fields.encode(
        replicas_pb2.ReportRequest,
        identity,
        report,
        incarnation=incarnation,
        steps=[_encode_step(step) for step in report.steps],
    )


def decode_report(reply: replicas_pb2.ReportReply) -> ReportAnswer:
    """Return the answer to a report."""
    return fields.decode(ReportAnswer, reply)


def encode_put_values(
    caller: CallerIdentity, version: int, nbytes: int
) -> parameters_pb2.PutValuesHeader:
    """Return the header of values for which the master has asked."""
    return fields.encode(parameters_pb2.PutValuesHeader, caller, version=version, nbytes=nbytes)


def encode_note(note: Note) -> bytes:
    """Return what a member tells the others, for ``decode_note``."""
    content = b"" if note.claim is None else _encode_claim(note.claim).SerializeToString()
    return (_STOPS if note.stops else _GOES_ON) + content


def decode_note(content: bytes) -> Note:
    """Return what a member has told."""
    stops, claim = content[:1] == _STOPS, content[1:]
    if not claim:
        return Note(None, stops)
    message = replicas_pb2.ReplicaClaim.FromString(claim)
    return Note(fields.decode(Claim, message, lease=decode_ref(message.lease)), stops)


def _encode_holding(holding: Holding) -> replicas_pb2.Holding:
    spans = [
        replicas_pb2.OriginSpan(
            version=span.version, origin=fields.encode(replicas_pb2.VersionOrigin, span.origin)
        )
        for span in holding.origins
    ]
    return replicas_pb2.Holding(version=holding.version, origins=spans)


def _encode_step(step: ReplicaStep) -> replicas_pb2.ReplicaStep:
    return replicas_pb2.ReplicaStep(
        version=step.version,
        claims=[
            replicas_pb2.MemberClaim(worker_id=worker, claim=_encode_claim(claim))
            for worker, claim in step.claims.items()
        ],
    )


def _encode_claim(claim: Claim) -> replicas_pb2.ReplicaClaim:
    return fields.encode(replicas_pb2.ReplicaClaim, claim, lease=encode_ref(claim.lease))
