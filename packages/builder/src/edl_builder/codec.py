"""Conversion between messages and core types."""

from __future__ import annotations

from edl_builder.core.build import Phase
from edl_builder.core.build_request import UncheckedRequest
from edl_builder.core.build_status import BuildStatus, LogLine
from edl_builder.core.failure import BuilderError, Failure, Reason
from edl_proto import fields
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import builder_pb2

PHASES: dict[Phase, builder_pb2.BuildPhase.ValueType] = {
    Phase.QUEUED: builder_pb2.QUEUED,
    Phase.RECEIVING: builder_pb2.RECEIVING,
    Phase.FETCHING: builder_pb2.FETCHING,
    Phase.RESOLVING: builder_pb2.RESOLVING,
    Phase.BUILDING: builder_pb2.BUILDING,
    Phase.PUSHING: builder_pb2.PUSHING,
    Phase.DONE: builder_pb2.DONE,
    Phase.FAILED: builder_pb2.BUILD_FAILED,
    Phase.CANCELLED: builder_pb2.BUILD_CANCELLED,
}

CODES: dict[Reason, ErrorCode.ValueType] = {
    Reason.INVALID: ErrorCode.USAGE,
    Reason.UNSAFE: ErrorCode.USAGE,
    Reason.FORBIDDEN: ErrorCode.FORBIDDEN,
    Reason.LIMIT: ErrorCode.LIMIT_EXCEEDED,
    Reason.NOT_FOUND: ErrorCode.BUILD_NOT_FOUND,
    Reason.SOURCE: ErrorCode.SOURCE_UNREACHABLE,
    Reason.BUILD: ErrorCode.IMAGE_BUILD_FAILED,
    Reason.ENGINE: ErrorCode.ENGINE_UNAVAILABLE,
    Reason.REGISTRY: ErrorCode.REGISTRY_UNAVAILABLE,
    Reason.TIMEOUT: ErrorCode.TIMED_OUT,
    Reason.CANCELLED: ErrorCode.STOPPED,
    Reason.RESTARTED: ErrorCode.BUILDER_RESTARTED,
    Reason.INTERNAL: ErrorCode.INTERNAL,
}


def request_from(spec: builder_pb2.BuildSpec) -> UncheckedRequest:
    """Decode a request."""
    source = spec.WhichOneof("source")
    git = spec.git
    return UncheckedRequest(
        repository=spec.repository,
        tag=spec.tag,
        base_image=spec.base_image,
        labels=dict(spec.labels),
        archive_nbytes=spec.archive.nbytes if source == "archive" else None,
        archive_sha256=spec.archive.sha256,
        git=(git.url, git.ref, git.folder, git.credential) if source == "git" else None,
    )


def refusal(what: str, where: str, remedy: str) -> BuilderError:
    """Return the error for a message that violates the protocol."""
    return BuilderError(Reason.INVALID, what, where=where, remedy=remedy)


def error_to(failure: Failure) -> EdlError:
    """Encode a failure as an error of the protocol."""
    return EdlError(
        CODES[failure.reason],
        failure.what,
        where=failure.where,
        remedy=failure.remedy,
        detail=failure.detail,
    )


def status_to(view: BuildStatus) -> builder_pb2.BuildStatus:
    """Encode the status of a build."""
    return fields.encode(
        builder_pb2.BuildStatus,
        view,
        phase=PHASES[view.phase],
        key=view.key or "",
        result=fields.encode(builder_pb2.BuildResult, view.result) if view.result else None,
        error=error_to(view.failure).to_proto() if view.failure else None,
    )


def progress_to(news: BuildStatus | LogLine) -> builder_pb2.BuildProgress:
    """Encode an element of the stream of progress."""
    if isinstance(news, BuildStatus):
        return builder_pb2.BuildProgress(status=status_to(news))
    line = fields.encode(builder_pb2.LogLine, news, phase=PHASES[news.phase])
    return builder_pb2.BuildProgress(line=line)
