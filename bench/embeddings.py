"""Rows of embedding tables per second: our plane against ParameterServerStrategy.

Minibatches of 512 x 26 ids with a Zipf skew, dim 16 and 64, SGD, one worker, one server, each in
a process of its own on this machine. *Rows* are the ids of a minibatch, repeats included: what a
model asks for. Both sides find the different ids of a minibatch first and move each row once.

- pull: from ids in memory to a row for each of them in memory.
- push: from a gradient for each id to an updated table; ours counts the minibatch in that step.
- step: both, as training needs them; ours in one call.

Ours pushes one minibatch while the next one's gradients are merged, and pulls the next one's rows
while this one's are looked up, as a worker does with ``--overlap``; the minibatches of one
closure of the peer overlap as TensorFlow sees fit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import tensorflow as tf

from bench.measure import ROOT, compare, run_module
from bench.peers.ids import skew_ids
from edl_proto.transport import channels, parameters
from edl_proto.v1 import parameters_pb2, task_pb2
from edl_worker.codec.parameters import encode_table_rows
from edl_worker.concurrency.background_call import BackgroundCall
from edl_worker.core.exchange import TableRows
from edl_worker.core.row_engine import RowRequest
from edl_worker.engines.tensorflow.embedding.distinct_ids import find_distinct
from edl_worker.training.row_buffer import RowReceiveBuffer, describe_request

BATCH, FIELDS, BATCHES, SECONDS, RUNS = 512, 26, 32, 2.0, 3
DIMS = (16, 64)
IDS = 1 << 20
"""Different ids; the peer needs to know how many there are."""


def minibatches() -> np.ndarray[Any, Any]:
    """Ids of shape (batches, 512 * 26)."""
    return skew_ids(BATCHES, BATCH, FIELDS, IDS)


def per_second(once: Callable[[int], None], *, rows: int) -> float:
    """Rows per second of a call that moves so many."""
    for number in range(BATCHES):
        once(number)
    done, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS:
        once(done % BATCHES)
        done += 1
    return done * rows / seconds


class Client:
    """A worker's side of the exchange, with what the worker itself uses."""

    def __init__(self, address: str, fingerprint: str, dim: int) -> None:
        self._who = {"incarnation": "bench", "layout_fingerprint": fingerprint}
        self._stub = parameters.ParametersStub(channels.connect(address), address)
        self._ids = minibatches()
        self._gradient = tf.constant(np.full((BATCH * FIELDS, dim), 1e-3, np.float32))
        self._dim = dim
        self._inbox = RowReceiveBuffer()
        self._version = 0
        self._pushed = 0
        self._exchange_call: BackgroundCall[parameters_pb2.PushReply | parameters_pb2.PullReply]
        self._exchange_call = BackgroundCall("exchange")
        self._asked: RowRequest | None = None
        self._now: RowRequest | None = None
        self._following: RowRequest | None = None

    def pull(self, number: int) -> None:
        following = self._request_rows(number + 1)
        self._settle()
        now = self._asked
        if now is None or not self._inbox.holds(now):
            now = self._request_rows(number)
            self._fetch(now)
        self._asked = following
        self._exchange_call.start(self._asking(following))
        self._looked_up(now)

    def push(self, number: int) -> None:
        wanted = self._request_rows(number)
        merged = self._merge(wanted)
        self._settle()
        self._begin(wanted, merged, None)

    def exchange(self, number: int) -> None:
        """Exchange what a step needs: push its rows, and fetch those of the next step but one."""
        if self._now is None:
            self._now, self._following = self._request_rows(number), self._request_rows(number + 1)
            self._settle()
            self._fetch(self._now)
        assert self._following is not None, "both were found"
        self._looked_up(self._now)
        merged, after = self._merge(self._now), self._request_rows(number + 2)
        self._settle()
        if not self._inbox.holds(self._following):
            self._fetch(self._following)
        self._begin(self._now, merged, after)
        self._now, self._following = self._following, after

    def _request_rows(self, number: int) -> RowRequest:
        looked_up = self._ids[number % BATCHES]
        ids, _, places = find_distinct(looked_up, [looked_up.size])
        return RowRequest((TableRows(0, ids.size),), ids, 4 * self._dim * ids.size, places)

    def _merge(self, wanted: RowRequest) -> Any:
        """Return one gradient for each id."""
        _, order, ascending = np.split(wanted.lookups, 3)
        return tf.raw_ops.SparseSegmentSumWithNumSegments(
            data=self._gradient,
            indices=order,
            segment_ids=ascending,
            num_segments=wanted.ids.size,
        ).numpy()

    def _fetch(self, wanted: RowRequest) -> None:
        reply = self._asking(wanted)()
        assert reply.rows_nbytes == wanted.nbytes
        self._inbox.on_received(wanted)

    def _asking(self, wanted: RowRequest) -> Callable[[], parameters_pb2.PullReply]:
        rows, ids = describe_request(wanted)
        tables = encode_table_rows(rows)
        header = parameters_pb2.PullHeader(**self._who, rows=tables, have_version=self._version)
        memory = self._inbox.open(wanted)
        return lambda: self._stub.pull(header, bytearray, 60, ids, memory)

    def _begin(self, wanted: RowRequest, merged: Any, following: RowRequest | None) -> None:
        rows, ids = describe_request(wanted)
        tables = encode_table_rows(rows)
        next_rows, next_ids = describe_request(following)
        next_tables = encode_table_rows(next_rows)
        header = parameters_pb2.PushHeader(
            **self._who,
            claim=parameters_pb2.PushClaim(
                lease=task_pb2.LeaseRef(task=task_pb2.TaskKey(type=task_pb2.TRAINING), token=1),
                minibatch=self._pushed,
                base_version=self._version,
                records=BATCH,
            ),
            gradient=parameters_pb2.GradientHeader(nbytes=4, rows=tables),
        )
        if following is not None:
            header.next.rows.extend(next_tables)
            header.next.SetInParent()
        payloads = (memoryview(bytes(4)), ids, next_ids, merged.data)
        memory = self._inbox.open(following)
        self._exchange_call.start(lambda: self._stub.push(header, payloads, bytearray, 60, memory))
        self._asked = following
        self._pushed += 1

    def _settle(self) -> None:
        """Wait for what is under way."""
        if not self._exchange_call.is_pending:
            return
        reply = self._exchange_call.result()
        assert reply.rows_nbytes == (0 if self._asked is None else self._asked.nbytes)
        if isinstance(reply, parameters_pb2.PushReply):
            assert reply.outcome == parameters_pb2.APPLIED, reply
            self._version = reply.version
        if self._asked is not None:
            self._inbox.on_received(self._asked)

    def _looked_up(self, wanted: RowRequest) -> None:
        at = wanted.lookups[: BATCH * FIELDS]
        rows = self._inbox.rows(wanted).reshape(-1, self._dim)
        tf.gather(tf.convert_to_tensor(rows), at)


class Peer:
    """The strategy, in processes of its own for as long as the bench takes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.strategy_rows", *map(str, DIMS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self._line()

    def measure(self, what: str, dim: int) -> float:
        assert self._process.stdin is not None
        print(what, dim, file=self._process.stdin, flush=True)
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the peer has failed")
        return line

    def close(self) -> None:
        """End it with its servers."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measures() -> list[dict[str, Any]]:
    found = []
    with ExitStack() as stack:
        peer = Peer()
        stack.callback(peer.close)
        for dim in DIMS:
            line = stack.enter_context(run_module("bench.peers.plane_server", str(dim)))
            client = Client(*line.split(), dim)
            for number in range(BATCHES):  # every row is there
                client.push(number)
            calls = {"pull": client.pull, "push": client.push, "step": client.exchange}
            found += [
                compare(
                    f"embedding {what}, dim {dim}",
                    "rows/s",
                    lambda once=once: per_second(once, rows=BATCH * FIELDS),
                    "TF ParameterServerStrategy, sharded variables",
                    lambda what=what, dim=dim: peer.measure(what, dim),
                    runs=RUNS,
                    target=2.0,
                ).to_json()
                for what, once in calls.items()
            ]
    return found
