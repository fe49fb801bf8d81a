"""The Builder service of the protocol."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import grpc

from edl_builder import codec
from edl_builder.control.build_service import BuildService
from edl_builder.core.build_request import RequestPolicy, Tenant, authorize
from edl_builder.core.build_status import BuildStatus
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.identifiers import BuildId
from edl_builder.metrics import Metrics
from edl_builder.servicers.guard import AdmittedCall
from edl_proto.v1 import builder_pb2, builder_pb2_grpc

_POLL_S = 1.0
_AHEAD = 4
"""The number of chunks that are read ahead of the disk."""

_LIST = 50
_MAX_LISTED = 500


class BuilderServicer(builder_pb2_grpc.BuilderServicer):
    """Decodes requests, calls the build service, encodes its answers.

    Args:
        service: all builds.
        call_of: the admitted call of a context.
        policy: what may be asked.
        metrics: counts refusals.
    """

    def __init__(
        self,
        service: BuildService,
        call_of: Callable[[grpc.ServicerContext], AdmittedCall],
        policy: RequestPolicy,
        metrics: Metrics,
    ) -> None:
        self._service = service
        self._call_of = call_of
        self._policy = policy
        self._metrics = metrics

    def Build(
        self,
        request_iterator: Iterator[builder_pb2.BuildRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[builder_pb2.BuildProgress]:
        """Stream progress and the final status; the call fails if the build does."""
        call = self._call_of(context)
        try:
            spec = _spec(request_iterator)
            call.about["repository"] = spec.repository
            request = authorize(codec.request_from(spec), call.tenant, self._policy)
            build = self._service.submit(call.tenant, request)
        except BuilderError as error:
            self._metrics.refused.labels(str(error.failure.reason)).inc()
            raise
        call.about["build"] = build
        context.add_callback(self._service.wake)
        last: BuildStatus | None = None
        with self._service.subscription(build):
            if request.git is None:
                yield codec.progress_to(self._service.view(build))
                chunks = _Chunks(
                    request_iterator,
                    context.is_active,
                    lambda: self._service.view(build).phase.is_final,
                )
                self._service.receive_archive(call.tenant, build, chunks)
            for news in self._service.follow(build, 0, context.is_active):
                if isinstance(news, BuildStatus):
                    last = news
                yield codec.progress_to(news)
        if last is not None and last.failure is not None:
            raise codec.error_to(last.failure)

    def Watch(
        self, request: builder_pb2.WatchBuildRequest, context: grpc.ServicerContext
    ) -> Iterator[builder_pb2.BuildProgress]:
        build = self._service.get(self._tenant(context, request.id), BuildId(request.id)).id
        context.add_callback(self._service.wake)
        with self._service.subscription(build):
            for news in self._service.follow(build, request.after_line, context.is_active):
                yield codec.progress_to(news)

    def Get(
        self, request: builder_pb2.GetBuildRequest, context: grpc.ServicerContext
    ) -> builder_pb2.BuildStatus:
        tenant = self._tenant(context, request.id)
        return codec.status_to(self._service.get(tenant, BuildId(request.id)))

    def List(
        self, request: builder_pb2.ListBuildsRequest, context: grpc.ServicerContext
    ) -> builder_pb2.ListBuildsReply:
        tenant = self._call_of(context).tenant
        views = self._service.newest(tenant, min(request.limit or _LIST, _MAX_LISTED))
        return builder_pb2.ListBuildsReply(builds=[codec.status_to(view) for view in views])

    def Cancel(
        self, request: builder_pb2.CancelBuildRequest, context: grpc.ServicerContext
    ) -> builder_pb2.BuildStatus:
        tenant = self._tenant(context, request.id)
        return codec.status_to(self._service.cancel(tenant, BuildId(request.id)))

    def _tenant(self, context: grpc.ServicerContext, build: str) -> Tenant:
        call = self._call_of(context)
        call.about["build"] = build
        return call.tenant


def _spec(requests: Iterator[builder_pb2.BuildRequest]) -> builder_pb2.BuildSpec:
    first = next(requests, None)
    if first is None or first.WhichOneof("part") != "spec":
        raise codec.refusal(
            "the first message is not the specification of the build",
            "Build",
            "Send a BuildRequest with `spec`, then the archive in `chunk`s.",
        )
    return first.spec


class _Chunks:
    """The archive's chunks as they arrive.

    They are read by a thread of their own: a sender that stops must not keep the
    call from ending when its time is over.
    """

    def __init__(
        self,
        requests: Iterator[builder_pb2.BuildRequest],
        is_active: Callable[[], bool],
        is_over: Callable[[], bool],
    ) -> None:
        self._requests = requests
        self._is_active = is_active
        self._is_over = is_over
        self._read: queue.Queue[bytes | BuilderError | None] = queue.Queue(_AHEAD)
        self._over = threading.Event()
        threading.Thread(target=self._feed, name="upload", daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        try:
            while True:
                try:
                    chunk = self._read.get(timeout=_POLL_S)
                except queue.Empty:
                    if self._is_over():
                        return
                    if not self._is_active():
                        raise _caller_left() from None
                    continue
                if chunk is None:
                    return
                if isinstance(chunk, BuilderError):
                    raise chunk
                yield chunk
        finally:
            self._over.set()

    def _feed(self) -> None:
        end: BuilderError | None = None
        try:
            for request in self._requests:
                if request.WhichOneof("part") != "chunk":
                    end = codec.refusal(
                        "a message that is not a chunk came after the specification",
                        "Build",
                        "Send one `spec`, then `chunk`s only.",
                    )
                    break
                if not self._put(request.chunk):
                    return
        except Exception:  # gRPC raises a bare one when the caller has left
            end = _caller_left()
        else:
            if end is None and not self._is_active():
                end = _caller_left()
        self._put(end)

    def _put(self, what: bytes | BuilderError | None) -> bool:
        while not self._over.is_set():
            try:
                self._read.put(what, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False


def _caller_left() -> BuilderError:
    return BuilderError(Reason.CANCELLED, "the caller left before its archive was complete")
