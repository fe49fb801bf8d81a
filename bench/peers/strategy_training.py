"""Training under TensorFlow's ParameterServerStrategy; prints records per second as JSON.

``python -m bench.peers.strategy_training MODEL DATA BATCH MINIBATCHES PER_CLOSURE``. Two workers
and one parameter server are in processes of their own; each worker reads the TFRecord files
through ``tf.data`` in an order of its own. ``PER_CLOSURE`` minibatches go into one closure.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import tensorflow as tf

from bench.peers import subjects
from bench.peers.strategy_rows import cluster_of, free_port

WORKERS = 2


def main(name: str, data: str, batch: int, minibatches: int, per_closure: int) -> None:
    jobs = {"worker": WORKERS, "ps": 1}
    cluster = {job: [f"127.0.0.1:{free_port()}" for _ in range(n)] for job, n in jobs.items()}
    serve = [sys.executable, "-m", "bench.peers.strategy_rows", "serve"]
    servers = [
        subprocess.Popen([*serve, job, json.dumps(cluster), str(index)])
        for job, n in jobs.items()
        for index in range(n)
    ]
    try:
        with tempfile.TemporaryDirectory() as place:
            subjects.write_tfrecords(data, place)
            speed = rate(cluster, name, place, batch, minibatches, per_closure)
        print(json.dumps({"records_per_s": speed}), flush=True)
    finally:
        for server in servers:
            server.send_signal(signal.SIGKILL)
            server.wait()
    os._exit(0)  # the strategy's threads would keep it alive


def rate(
    cluster: dict[str, list[str]],
    name: str,
    folder: str,
    batch: int,
    minibatches: int,
    per_closure: int,
) -> float:
    """Records per second, once everything is traced."""
    strategy, coordinator = cluster_of(cluster)
    subject = subjects.find_subject(name)
    with strategy.scope():
        network = subject.network()
    data = coordinator.create_per_worker_dataset(
        lambda: subject.minibatches(folder, batch, repeated=True)
    )
    iterator = iter(data)

    @tf.function
    def closure(batches: Any) -> Any:
        loss = tf.zeros(())
        for _ in tf.range(per_closure):
            features, labels = next(batches)
            loss = network.step(features, labels, subject.rate)
        return loss

    def run(closures: int) -> None:
        for _ in range(closures):
            coordinator.schedule(closure, args=(iterator,))
        coordinator.join()

    run(4 * WORKERS)
    closures = max(4 * WORKERS, minibatches // per_closure)
    begun = time.perf_counter()
    run(closures)
    return closures * per_closure * batch / (time.perf_counter() - begun)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
