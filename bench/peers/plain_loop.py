"""A plain ``tf.function`` loop without Keras, servers or a network; prints records per second.

``python -m bench.peers.plain_loop MODEL DATA BATCH EPOCHS``. The input is that of ``keras_fit``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

import tensorflow as tf

from bench.peers import subjects


def main(name: str, data: str, batch: int, epochs: int) -> None:
    subject = subjects.find_subject(name)
    network = subject.network()

    @tf.function(reduce_retracing=True)
    def step(features: object, labels: object) -> object:
        return network.step(features, labels, subject.rate)

    with tempfile.TemporaryDirectory() as place:
        records = subjects.write_tfrecords(data, place)
        dataset = subject.minibatches(place, batch)
        ends = []
        for _ in range(epochs):
            for features, labels in dataset:
                step(features, labels)
            ends.append(time.perf_counter())
    print(json.dumps({"records_per_s": records * (epochs - 1) / (ends[-1] - ends[0])}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]))
