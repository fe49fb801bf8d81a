"""The gRPC server: its services, its port, its threads, and the translation of errors."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from edl_master.adapters.tcp_ports import check_port
from edl_master.codec import malformed_message
from edl_master.control.job_controller import MAX_WAITING_REQUESTS
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.push import NotInitialized
from edl_master.servicers.call_limits import CallLimits
from edl_master.servicers.coordinator import CoordinatorServicer
from edl_master.servicers.job import JobServicer
from edl_master.servicers.parameters import ParametersServicer
from edl_master.servicers.replicas import ReplicasServicer
from edl_master.servicers.servers import ServersServicer
from edl_master.servicers.shard import ShardServicer
from edl_master.servicers.tasks import TasksServicer
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.access_control import AccessControl
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels, raw_calls
from edl_proto.transport.channels import SERVER_OPTIONS
from edl_proto.transport.direct_connection import FrameError
from edl_proto.transport.listener import Listener
from edl_proto.transport.parameters import SHARD
from edl_proto.transport.raw_calls import RawService
from edl_proto.v1 import (
    job_pb2,
    job_pb2_grpc,
    replicas_pb2,
    replicas_pb2_grpc,
    servers_pb2,
    servers_pb2_grpc,
    task_pb2,
    task_pb2_grpc,
)

log = logging.getLogger(__name__)

_SHORT_CALLS = 64
"""Calls at a time that never wait: heartbeats, completions, status, probes. Calls above this limit
queue for milliseconds."""

_READY_CALLS = 64
"""Calls at a time that may wait for parameter servers to start."""

_WATCHERS = 32
"""Clients at a time that follow the events."""

_TIMELINES = 2
"""Clients at a time that read the timeline: some tens of megabytes of a long job."""

_PARAMETER_CALLS = 256
"""Calls at a time from workers that cannot reach the port of direct calls; each may wait for a
step permit."""

_JOINING_CALLS = 256
"""Calls at a time from workers that wait for the next generation; more ask again."""

_SHARD_CALLS = 256
"""Calls at a time: one or two of each worker."""

_PORT_OPTION = "--port"
_TASKS = task_pb2.DESCRIPTOR.services_by_name["Tasks"].full_name
_REPLICAS = replicas_pb2.DESCRIPTOR.services_by_name["Replicas"].full_name
_JOB = job_pb2.DESCRIPTOR.services_by_name["Job"].full_name


@dataclass(frozen=True, slots=True)
class Services:
    """The services of a server.

    Attributes:
        tasks: to workers.
        job: to clients.
        parameters: to workers, and its role; None for jobs on a trained model.
        servers: to parameter servers; None if there are none.
        replicas: to workers that train in step; None if they do not.
    """

    tasks: TasksServicer
    job: JobServicer
    parameters: tuple[RawService, ParametersServicer | CoordinatorServicer] | None
    servers: ServersServicer | None = None
    replicas: ReplicasServicer | None = None


class Server:
    """Listens until it is closed.

    Args:
        services: what is served.
        host: address to listen on.
        port: 0 for any.
        parameter_servers: how many servers will read the command log, each in one long call of the
            parameter service.
        on_internal_error: called for every call that failed with an internal error.
        stream_port: of direct parameter connections; 0 for any.
        access_control: admits the callers that the job knows; None: the job is not secured.

    Raises:
        EdlError: PORT_IN_USE, or USAGE for an address that this machine does not have.
    """

    def __init__(
        self,
        services: Services,
        host: str,
        port: int,
        parameter_servers: int,
        on_internal_error: Callable[[], None] = lambda: None,
        stream_port: int = 0,
        access_control: AccessControl | None = None,
    ) -> None:
        def note(method: str, error: Exception) -> None:
            log.error("%s\n%s", method, "".join(traceback.format_exception(error)))
            on_internal_error()

        # The executor makes a thread when a call finds no idle one. The number of workers does not
        # matter: calls that wait are limited, all others are short.
        limits = {
            f"/{_TASKS}/Ready": _READY_CALLS,
            f"/{_JOB}/WatchEvents": _WATCHERS,
            f"/{_JOB}/ReadTimeline": _TIMELINES,
        }
        if services.replicas is not None:
            limits[f"/{_REPLICAS}/Join"] = _JOINING_CALLS
        if services.parameters is not None:
            limits[f"/{services.parameters[0].name}/"] = _PARAMETER_CALLS + parameter_servers
        waiting_calls = MAX_WAITING_REQUESTS + sum(limits.values()) + 2 * parameter_servers
        threads = _SHORT_CALLS + waiting_calls
        self._server = grpc.server(
            futures.ThreadPoolExecutor(threads, thread_name_prefix="grpc"),
            interceptors=_after(
                access_control, CallLimits(limits), errors := ErrorInterceptor(_translate, note)
            ),
            options=(*SERVER_OPTIONS, channels.connection_limit()),
        )
        task_pb2_grpc.add_TasksServicer_to_server(services.tasks, self._server)
        job_pb2_grpc.add_JobServicer_to_server(services.job, self._server)
        names = [_TASKS, _JOB]
        self._direct: Listener | None = None
        if services.parameters is not None:
            check_port(host, stream_port, _PORT_OPTION)
            role, servicer = services.parameters
            self._direct = raw_calls.listen(
                role, servicer, host, errors.translate, stream_port, access_control
            )
            raw_calls.add_to_server(role, servicer, self._server, self._direct)
            names.append(role.name)
        if services.replicas is not None:
            replicas_pb2_grpc.add_ReplicasServicer_to_server(services.replicas, self._server)
            names.append(_REPLICAS)
        if services.servers is not None:
            servers_pb2_grpc.add_ServersServicer_to_server(services.servers, self._server)
            names.append(servers_pb2.DESCRIPTOR.services_by_name["Servers"].full_name)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for name in ("", *names):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        reflection.enable_server_reflection(
            (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        self.port = self._listen(host, port, access_control)
        self._server.start()

    def _listen(self, host: str, port: int, access_control: AccessControl | None) -> int:
        # Checked first: gRPC would only report that it failed.
        check_port(host, port, _PORT_OPTION)
        shown = f"[{host}]" if ":" in host else host
        try:
            return channels.add_port(self._server, f"{shown}:{port}", access_control)
        except RuntimeError as error:
            check_port(host, port, _PORT_OPTION)
            raise EdlError(
                ErrorCode.PORT_IN_USE,
                f"the master cannot listen on {shown}:{port}: {error}",
                where=f"{shown}:{port}",
                remedy=f"Choose another port with {_PORT_OPTION}.",
            ) from error

    def close(self, grace_s: float) -> None:
        """Take no more calls, and give running calls ``grace_s`` to end."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait(grace_s + 1)
        if self._direct is not None:
            self._direct.close()


class ShardServer:
    """The server of a parameter server: parameters alone, on any free ports.

    Args:
        shard: what is served.
        host: address to listen on.
        port: of gRPC; 0 for any.
        stream_port: of direct connections; 0 for any.
        access_control: admits the callers that the job knows; None: the job is not secured.
    """

    def __init__(
        self,
        shard: ShardServicer,
        host: str,
        port: int = 0,
        stream_port: int = 0,
        access_control: AccessControl | None = None,
    ) -> None:
        def note(method: str, error: Exception) -> None:
            log.error("%s\n%s", method, "".join(traceback.format_exception(error)))

        # All workers may wait at the same time, and pull while others push.
        self._server = grpc.server(
            futures.ThreadPoolExecutor(_SHARD_CALLS, thread_name_prefix="grpc"),
            interceptors=_after(access_control, errors := ErrorInterceptor(_translate, note)),
            options=(*SERVER_OPTIONS, channels.connection_limit()),
        )
        self._direct = raw_calls.listen(
            SHARD, shard, host, errors.translate, stream_port, access_control
        )
        raw_calls.add_to_server(SHARD, shard, self._server, self._direct)
        serving = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(serving, self._server)
        for name in ("", SHARD.name):
            serving.set(name, health_pb2.HealthCheckResponse.SERVING)
        shown = f"[{host}]" if ":" in host else host
        self.port = channels.add_port(self._server, f"{shown}:{port}", access_control)
        self._server.start()

    def close(self) -> None:
        """Take no more calls."""
        self._server.stop(0).wait()
        self._direct.close()


def _after(
    access_control: AccessControl | None, *others: grpc.ServerInterceptor
) -> list[grpc.ServerInterceptor]:
    """Return the interceptors of a server that follow its access control."""
    return [access_control.interceptor, *others] if access_control is not None else [*others]


def _translate(error: Exception) -> EdlError | None:
    """Translate the error of a failed call, unless it is an internal error of the master."""
    match error:
        case FrameError() | PayloadError() | DecodeError():
            return malformed_message(f"a message cannot be read: {error}")
        case NotInitialized():
            return EdlError(ErrorCode.NOT_READY, str(error), where="parameters")
        case _:
            return None
