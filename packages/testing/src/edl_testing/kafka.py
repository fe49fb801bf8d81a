"""A cluster of Kafka for tests: librdkafka's own, within the process that starts it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import confluent_kafka


class KafkaCluster:
    """A broker that other processes can connect to, until this object is freed.

    Topics have four partitions and appear when they are first written to. The broker keeps about
    5 MB of each partition. It knows neither the ids nor the settings of topics.

    Attributes:
        address: ``HOST:PORT`` of the broker.
    """

    def __init__(self) -> None:
        quiet = {"bootstrap.servers": "unused", "log_level": 0}
        self._owner = confluent_kafka.Producer({"test.mock.num.brokers": 1, **quiet})
        (broker,) = self._owner.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self._settings = {"bootstrap.servers": self.address, "log_level": 0}
        self._producer = confluent_kafka.Producer(self._settings)

    def uri(self, topic: str) -> str:
        """Return the URI of a topic."""
        return f"kafka://{self.address}/{topic}"

    def write(self, topic: str, values: Iterable[bytes | None], partition: int = 0) -> None:
        """Write messages; they can be read when this returns."""
        _write(self._producer, topic, values, partition)
        self._producer.flush()

    def spread(self, topic: str, values: Sequence[bytes], partitions: int = 4) -> None:
        """Write messages to several partitions in turn."""
        for partition in range(partitions):
            self.write(topic, values[partition::partitions], partition)

    @contextmanager
    def transaction(
        self, topic: str, values: Iterable[bytes], partition: int = 0
    ) -> Iterator[None]:
        """Write messages in a transaction, which ends with the block."""
        producer = confluent_kafka.Producer({**self._settings, "transactional.id": topic})
        producer.init_transactions()
        producer.begin_transaction()
        _write(producer, topic, values, partition)
        producer.flush()
        yield
        producer.commit_transaction()


def _write(
    producer: confluent_kafka.Producer,
    topic: str,
    values: Iterable[bytes | None],
    partition: int,
) -> None:
    for value in values:
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
