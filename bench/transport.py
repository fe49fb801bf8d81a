"""Dense parameters: pulled, and pushed and applied, against plain TCP over loopback.

One variable of 64 MB or 1 GB, one worker and one server in processes of their own on this
machine, and plain TCP between two processes in turn with them.

- pull: until all values are in the worker's memory.
- push+apply: until the answer that the update is made and its minibatch counted.

``EDL_BENCH_LARGE=0`` leaves 1 GB out: it needs about 8 GB of memory.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from bench.measure import compare, run_module
from bench.peers.plain_tcp import receive
from edl_proto.identity.credentials import Peer
from edl_proto.transport import channels, parameters
from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2

SIZES = {"64 MB": (64_000_000, 5, 9), "1 GB": (1_000_000_000, 3, 1)}
"""By name: bytes, runs, transfers of a run."""

TARGET, DEADLINE_S = 0.60, 120.0


class Worker:
    """A worker's side of the exchange, into and out of memory that stays."""

    def __init__(
        self,
        address: str,
        fingerprint: str,
        nbytes: int,
        precision: job_pb2.WirePrecision.ValueType = job_pb2.FLOAT32,
        server: Peer | None = None,
    ) -> None:
        self._stub = parameters.ParametersStub(channels.connect(address, server), address, server)
        self._who = {"incarnation": "bench", "layout_fingerprint": fingerprint}
        self._precision = precision
        self._gradient = np.full(nbytes // 4, 1e-3, np.float32)
        if precision != job_pb2.FLOAT32:
            self._gradient = np.zeros(nbytes // 4, np.uint16)
        self._values = memoryview(bytearray(self._gradient.nbytes))
        self._pushed = 0

    def pull(self) -> None:
        header = parameters_pb2.PullHeader(**self._who, precision=self._precision)
        reply = self._stub.pull(header, lambda _: self._values, DEADLINE_S)
        assert reply.nbytes == len(self._values)

    def push(self) -> None:
        header = parameters_pb2.PushHeader(
            **self._who,
            claim=parameters_pb2.PushClaim(
                lease=task_pb2.LeaseRef(task=task_pb2.TaskKey(type=task_pb2.TRAINING), token=1),
                minibatch=self._pushed,
                base_version=self._pushed,
                records=1,
            ),
            gradient=parameters_pb2.GradientHeader(
                nbytes=self._gradient.nbytes, precision=self._precision
            ),
        )
        reply = self._stub.push(header, (self._gradient.data,), bytearray, DEADLINE_S)
        assert reply.outcome == parameters_pb2.APPLIED, reply
        self._pushed += 1


class Plain:
    """The caller of ``bench.peers.plain_tcp``."""

    def __init__(self, address: str, nbytes: int, server: Peer | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if server is not None:
            context = server.credentials.client_context
            self._connection = context.wrap_socket(self._connection, server_hostname=server.host)
        self._memory = memoryview(bytearray(nbytes))

    def pull(self) -> None:
        self._connection.sendall(b"<")
        receive(self._connection, self._memory)

    def push(self) -> None:
        self._connection.sendall(b">")
        self._connection.sendall(self._memory)
        assert self._connection.recv(1)


def rate(once: Callable[[], None], nbytes: int, times: int) -> float:
    """GB/s: the median of some transfers, one after the other."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - begun)
    return nbytes / statistics.median(seconds) / 1e9


def sizes() -> dict[str, tuple[int, int, int]]:
    """Return the ``SIZES`` that are to be measured."""
    large = os.environ.get("EDL_BENCH_LARGE", "1") != "0"
    return dict(list(SIZES.items())[: 2 if large else 1])


def measures() -> list[dict[str, Any]]:
    """GB/s of each transfer next to plain TCP in the same direction."""
    found = []
    for size, (nbytes, runs, times) in sizes().items():
        for name, what, optimizer in (
            ("pull", "pull", "SGD"),
            ("push+apply, SGD", "push", "SGD"),
            ("push+apply, Adam", "push", "Adam"),
        ):
            with ExitStack() as stack:
                server = stack.enter_context(
                    run_module("bench.peers.plane_server", "1", str(nbytes // 4), optimizer)
                )
                plain = stack.enter_context(run_module("bench.peers.plain_tcp", str(nbytes)))
                ours = getattr(Worker(*server.split(), nbytes), what)
                theirs = getattr(Plain(plain, nbytes), what)
                for once in (ours, theirs):  # memory is touched, loops are compiled
                    once()
                    once()
                found.append(
                    compare(
                        f"{name}, {size} dense",
                        "GB/s",
                        lambda ours=ours, n=nbytes, t=times: rate(ours, n, t),
                        "plain TCP over loopback",
                        lambda theirs=theirs, n=nbytes, t=times: rate(theirs, n, t),
                        runs=runs,
                        target=TARGET,
                    ).to_json()
                )
    return found
