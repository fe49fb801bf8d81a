"""The same rows under TensorFlow's ParameterServerStrategy; for ``bench.embeddings``.

``python -m bench.peers.strategy_rows DIM...`` says when it is ready; then for each line
``pull DIM``, ``push DIM`` or ``step DIM`` it prints rows per second. One worker and one parameter
server are in processes of their own; the table is a sharded variable. Several minibatches go into
one closure, its better variant, and no Keras optimizer is in the way: a push is one
scatter-subtract per shard.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

PER_CLOSURE, SHARDS, LEARNING_RATE = 8, 2, 0.01


def serve(job: str, cluster: str, index: str = "0") -> None:
    import tensorflow as tf

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    spec = tf.train.ClusterSpec(json.loads(cluster))
    tf.distribute.Server(
        spec, job_name=job, task_index=int(index), protocol="grpc", start=True
    ).join()


def _end_with(parent: int) -> None:
    """Leave no server behind, whatever ended the process that started it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def cluster_of(cluster: dict[str, list[str]], shards: int = 0) -> tuple[Any, Any]:
    """The strategy, with variables cut into so many shards, and its coordinator."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc"
    )
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(shards)
    strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner if shards else None)
    return strategy, tf.distribute.coordinator.ClusterCoordinator(strategy)


def prepare(  # noqa: C901  (nested functions, because tf.function traces their closures)
    dim: int, strategy: Any, coordinator: Any
) -> dict[str, Callable[[], float]]:
    """Make a table; return the functions that measure its pull, push and step."""
    import tensorflow as tf

    from bench.embeddings import BATCH, BATCHES, FIELDS, IDS, SECONDS, minibatches

    with strategy.scope():
        table = tf.Variable(tf.random.uniform((IDS, dim), -0.05, 0.05))
    shards = table.variables
    starts = [sum(s.shape[0] for s in shards[:n]) for n in range(len(shards) + 1)]

    given = minibatches()

    def closure(*parts: str) -> Any:
        @tf.function
        def step(begin: Any) -> Any:
            batches, last = tf.constant(given), tf.zeros(())
            gradient = tf.fill([BATCH * FIELDS, dim], 1e-3)
            for n in tf.range(PER_CLOSURE):
                unique, at = tf.unique(batches[(begin + n) % BATCHES])
                if "pull" in parts:
                    rows = tf.gather(tf.nn.embedding_lookup(shards, unique), at)
                    last += rows[0, 0]
                if "push" in parts:
                    push(unique, tf.math.unsorted_segment_sum(gradient, at, tf.size(unique)))
            return last

        return step

    def push(unique: Any, gradient: Any) -> None:
        change = LEARNING_RATE * gradient
        for shard, low, high in zip(shards, starts, starts[1:], strict=False):
            here = tf.where((unique >= low) & (unique < high))[:, 0]
            slices = tf.IndexedSlices(tf.gather(change, here), tf.gather(unique, here) - low)
            shard.scatter_sub(slices)

    def measure(step: Any) -> float:
        for begin in range(0, BATCHES, PER_CLOSURE):
            coordinator.schedule(step, args=(tf.constant(begin),))
        coordinator.join()
        done, begun = 0, time.perf_counter()
        while (seconds := time.perf_counter() - begun) < SECONDS:
            for _ in range(4):
                coordinator.schedule(step, args=(tf.constant(done % BATCHES),))
                done += PER_CLOSURE
            coordinator.join()
        return done * BATCH * FIELDS / seconds

    closures = {
        "pull": closure("pull"),
        "push": closure("push"),
        "step": closure("pull", "push"),
    }
    return {what: partial(measure, step) for what, step in closures.items()}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main() -> None:
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
        return
    cluster = {job: [f"127.0.0.1:{free_port()}"] for job in ("worker", "ps")}
    servers = [
        subprocess.Popen([sys.executable, "-m", __spec__.name, "serve", job, json.dumps(cluster)])
        for job in cluster
    ]
    try:
        strategy, coordinator = cluster_of(cluster, SHARDS)
        tables = {dim: prepare(int(dim), strategy, coordinator) for dim in sys.argv[1:]}
        print("ready", flush=True)
        for line in sys.stdin:
            what, dim = line.split()
            print(tables[dim][what](), flush=True)
    finally:
        for server in servers:
            server.send_signal(signal.SIGKILL)
            server.wait()
    os._exit(0)  # the strategy's threads would keep it alive


if __name__ == "__main__":
    main()
