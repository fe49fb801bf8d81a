"""Topics of Kafka as tasks read them, against RecordIO, and against a plain consumer.

Tasks are ranges of records, so a worker seeks in a partition for each of them. The broker is the
one for tests, in the same process.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np

import recordio
from bench.measure import compare
from edl_testing.kafka import KafkaCluster
from recordio.kafka.addresses import PartitionRange, parse

RUNS, RECORDS, NBYTES, TASK = 7, 32_000, 400, 2_048


def measures() -> list[dict[str, Any]]:
    """Records per second of reading tasks, and of counting what is new."""
    cluster = KafkaCluster()
    draw = np.random.default_rng(1)
    records = [draw.bytes(NBYTES) for _ in range(RECORDS)]
    cluster.spread("clicks", records)
    ranges = recordio.expand(cluster.uri("clicks"))
    with tempfile.TemporaryDirectory() as place:
        file = str(Path(place) / "clicks.recordio")
        with recordio.Writer(file) as writer:
            for record in records:
                writer.write(record)
        reading = _rate(_tasks(ranges))
        peers = {
            "RecordIO of the same records": (_rate(_tasks([file])), 0.8),
            "a plain consumer": (_rate(lambda: _consume(ranges)), None),
        }
        found = [
            compare("tasks of a topic", "records/s", reading, peer, rate, runs=RUNS, target=target)
            for peer, (rate, target) in peers.items()
        ]
        counting = _rate(lambda: sum(recordio.open_source(uri).count() for uri in ranges))
        plain = _rate(lambda: _consume(ranges))
        peer = "a plain consumer"
        name = "counting what is new"
        found.append(compare(name, "records/s", counting, peer, plain, runs=RUNS, target=None))
    return [measure.to_json() for measure in found]


def _rate(read: Callable[[], int]) -> Callable[[], float]:
    """Return a measurement of the records per second of reading all of them."""

    def measure() -> float:
        begin = time.perf_counter()
        assert read() == RECORDS
        return RECORDS / (time.perf_counter() - begin)

    return measure


def _tasks(uris: list[str]) -> Callable[[], int]:
    """Return what reads files in tasks, with the index that the master has."""
    indexes = {uri: recordio.open_source(uri).index() for uri in uris}

    def read() -> int:
        found = 0
        for uri, index in indexes.items():
            source = recordio.open_source(uri)
            for start in range(0, index.records, TASK):
                stop = min(start + TASK, index.records)
                hint, end = index.block(start), index.end(stop)
                blocks = source.read_blocks(start, stop, hint=hint, end=end, exact=True)
                found += sum(map(len, blocks))
        return found

    return read


def _consume(uris: list[str]) -> int:
    """Read all partitions with a consumer of the library, from beginning to end."""
    named = [part for part in map(parse, uris) if isinstance(part, PartitionRange)]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": named[0].servers, "group.id": "plain", "log_level": 0}
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(it.topic, it.partition, it.start) for it in named]
    )
    found = 0
    while found < RECORDS:
        most = min(1024, RECORDS - found)
        found += sum(len(it.value() or b"") == NBYTES for it in consumer.consume(most, 1.0))
    consumer.close()
    return found


if __name__ == "__main__":
    from bench.__main__ import main

    sys.argv[1:1] = ["kafka_reading"]
    sys.exit(main())
