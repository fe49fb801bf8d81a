"""A master for tests of workers: real gRPC, parameters in numpy, the rules of the ledger.

The test gives it one job as stages of tasks. A stage starts when all tasks of the one before are
done; the parameters are then frozen under the name ``stage-N``. Updates are plain SGD. The test
scripts the faults: hooks, revoked leases, restarts. ``conformance`` has the rules that this master
shares with the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc

from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels
from edl_proto.transport.parameters import PARAMETERS
from edl_proto.transport.raw_calls import add_to_server
from edl_proto.v1 import job_pb2, replicas_pb2_grpc, task_pb2, task_pb2_grpc
from edl_testing import fake_services as services
from edl_testing.fake_ledger import FakeLedger
from edl_testing.fake_replicas import FakeReplicas

WAIT_S = 200.0
"""The deadline of everything that a test waits for."""


class FakeMaster(FakeLedger):
    """One job on one port of the loopback address; ``FakeLedger`` describes the arguments."""

    def __init__(
        self,
        job: job_pb2.JobSpec,
        stages: list[list[task_pb2.Lease]],
        *,
        rate: float = 0.1,
        grads_to_wait: int = 1,
    ) -> None:
        super().__init__(job, stages, rate=rate, grads_to_wait=grads_to_wait)
        self._port = 0
        self._server: grpc.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> FakeMaster:
        server = grpc.server(
            futures.ThreadPoolExecutor(16),
            options=channels.SERVER_OPTIONS,
            interceptors=[ErrorInterceptor(None, lambda name, error: print(name, repr(error)))],
        )
        task_pb2_grpc.add_TasksServicer_to_server(services.TaskService(self), server)
        replicas_pb2_grpc.add_ReplicasServicer_to_server(self.replicas, server)
        add_to_server(PARAMETERS, services.ParameterService(self), server)
        self._port = server.add_insecure_port(f"127.0.0.1:{self._port}")
        server.start()
        self._server = server
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def snapshot(self) -> dict[str, Any]:
        """Return ledger and parameters together."""
        with self.changed:
            return self.snapshot_held()

    def snapshot_held(self) -> dict[str, Any]:
        """Return ledger and parameters together, for a caller that holds the lock."""
        return {
            "initialized": self.initialized,
            "values": self.values.copy(),
            "version": self.version,
            "tasks": [(task.applied, task.done) for task in self.all_tasks()],
        }

    def restart(self, snapshot: dict[str, Any], *, inherits: bool = False) -> None:
        """Restart as another incarnation, from a snapshot, or what workers have made of it."""
        self.stop()
        with self.changed:
            self.incarnation += "+"
            self.permits.clear()
            self.accumulated.clear()
            self.initialized = snapshot["initialized"]
            self.replicas = FakeReplicas(self)
            self.replicas.inherits = inherits
            self.replicas.counted = self.replicas.stored = snapshot["version"]
            self.values, self.version = snapshot["values"].copy(), snapshot["version"]
            for task, (applied, done) in zip(self.all_tasks(), snapshot["tasks"], strict=True):
                task.applied, task.done, task.token = applied, done, 0
        self.start()

    def wait_for(self, what: Callable[[], bool], named: str) -> None:
        """Wait until a condition holds, or a worker reports that it cannot work."""

        def worker_failures() -> list[task_pb2.FailRequest]:
            return [failed for failed in self.received.failed if not failed.HasField("lease")]

        with self.changed:
            self.changed.wait_for(lambda: what() or worker_failures(), WAIT_S)
            if not what():
                raise AssertionError(f"not within {WAIT_S:.0f} s: {named}; {worker_failures()}")
