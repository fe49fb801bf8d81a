"""Reads ranges of partitions with the clients of librdkafka.

A client is used by one reader at a time and kept for the next one: a new one needs connections.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recordio.errors import LostRecords, MissingPackage, RecordError, UnreadableFile
from recordio.kafka.addresses import PartitionRange, read_settings
from recordio.storage.stored_file import RETRY_S

log = logging.getLogger(__name__)

_MESSAGES = 1024
"""Fetched at once."""

_POLL_S = 0.1

_CONSUMER = {
    "group.id": "edl",
    "enable.auto.commit": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    # A reader that waits for the end of a fetch without records would wait so long.
    "fetch.wait.max.ms": "10",
    # The most that is fetched beyond a range, for a reader that may come.
    "queued.max.messages.kbytes": "16384",
    "fetch.message.max.bytes": "1048576",
    "allow.auto.create.topics": "false",
}

_QUIET = {
    # A line for each failed connection would fill the log; errors say what the last one was.
    "log_level": "2",
    "log.connection.close": "false",
    "reconnect.backoff.ms": "250",
    "reconnect.backoff.max.ms": "5000",
}

_NONE: Mapping[str, str] = {}


Place = tuple[str, int, int]
"""A topic, a partition and an offset."""


@dataclass(slots=True)
class Client:
    """A consumer without a group.

    Attributes:
        consumer: of the library.
        errors: what its connections have complained about.
        place: the next message that it gives, which it has requested already; None: none.
    """

    consumer: Any
    errors: list[Any] = field(default_factory=list)
    place: Place | None = None

    def refuse_permanent(self, uri: str) -> None:
        """Raise ``UnreadableFile`` if the brokers refuse this client."""
        for error in self.errors:
            if _is_permanent(error):
                raise UnreadableFile(f"{uri}: {explain(error)}")

    @property
    def complaint(self) -> str:
        """The last error of the connections in words; empty if there was none."""
        self.consumer.poll(0)
        return explain(self.errors[-1]) if self.errors else ""


def library(uri: str) -> Any:
    """Import and return ``confluent_kafka``.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        import confluent_kafka.admin
    except ImportError as error:
        raise MissingPackage(uri, "confluent-kafka") from error
    return confluent_kafka


_idle: dict[tuple[int, str], list[Client]] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def borrow(servers: str, uri: str, place: Place | None = None) -> Iterator[Client]:
    """Lend a client of some brokers.

    Args:
        servers: of the first connection.
        uri: for messages.
        place: where it will read: one that has read up to there has more of it already.

    Raises:
        RecordError: the settings are wrong, or the package is missing.
    """
    key = (os.getpid(), servers)
    with _lock:
        idle = _idle.setdefault(key, [])
        client = next((each for each in idle if place and each.place == place), None)
        client = client or (idle[-1] if idle else None)
        if client is not None:
            idle.remove(client)
    client = client or _connect(servers, uri)
    is_usable = False
    try:
        yield client
        is_usable = True
    except GeneratorExit:  # a reader that needs no more
        is_usable = True
        raise
    finally:
        if is_usable:
            if client.place is None:
                client.consumer.unassign()
            with _lock:
                _idle[key].append(client)
        else:
            client.consumer.close()


def _connect(servers: str, uri: str) -> Client:
    errors: list[Any] = []
    return Client(make(library(uri).Consumer, servers, uri, errors, _CONSUMER), errors)


def make(
    type_: Any, servers: str, uri: str, errors: list[Any], settings: Mapping[str, str] = _NONE
) -> Any:
    """Return a new client of some brokers.

    Args:
        type_: of ``confluent_kafka``.
        servers: of the first connection.
        uri: for messages.
        errors: gets what the connections complain about.
        settings: more of them, which the user's own override.

    Raises:
        RecordError: the user's settings are wrong.
    """
    try:
        own = {"bootstrap.servers": servers, "error_cb": errors.append, "logger": log}
        return type_({**_QUIET, **settings, **read_settings(), **own})
    except (library(uri).KafkaException, ValueError, TypeError) as error:
        raise RecordError(f"{uri}: the settings of Kafka are wrong: {explain(error)}") from error


def read_messages(
    wanted: PartitionRange, start: int, most: int | None = None, patience_s: float = RETRY_S
) -> Iterator[list[Any]]:
    """Yield the messages of a range, in order.

    Args:
        wanted: the range.
        start: the offset of the first message; not before that of the range.
        most: the number of messages after which to end; None: at the end of the range.
        patience_s: how long to wait for brokers that do not answer.

    Raises:
        LostRecords: some are not there any more.
        UnreadableFile: the brokers refuse, or do not answer.
    """
    if start >= wanted.stop:
        return
    kafka = library(wanted.uri)
    place = (wanted.topic, wanted.partition, start)
    with borrow(wanted.servers, wanted.uri, place) as client:
        client.errors.clear()
        if client.place != place:
            client.consumer.assign([kafka.TopicPartition(*place)])
        client.place = None
        reading = _Reading(kafka, client, wanted, start, patience_s)
        yield from reading.run(start, most or wanted.stop - start)
        client.place = reading.place


class _Reading:
    def __init__(
        self, kafka: Any, client: Client, wanted: PartitionRange, start: int, patience_s: float
    ) -> None:
        self._errors = kafka.KafkaError
        self._client = client
        self._wanted = wanted
        self._start = start
        self._patience_s = patience_s
        self.place: Place | None = None
        """Of the message after the last one, if none beyond it has been taken."""

    def run(self, offset: int, most: int) -> Iterator[list[Any]]:
        wanted, deadline = self._wanted, time.monotonic() + self._patience_s
        while True:
            # The client waits for as many messages as it is asked for.
            count = min(_MESSAGES, wanted.stop - offset, most)
            found, has_ended = self._sort(self._client.consumer.consume(count, _POLL_S))
            if found:
                offset, most = found[-1].offset() + 1, most - len(found)
                if offset == wanted.stop or not most:
                    self.place, has_ended = (wanted.topic, wanted.partition, offset), True
                deadline = time.monotonic() + self._patience_s
                yield found
            if has_ended:
                return
            self._client.refuse_permanent(wanted.uri)
            if time.monotonic() > deadline:
                raise UnreadableFile(
                    f"{wanted.uri}: no record for {self._patience_s:.0f} s: "
                    f"{self._client.complaint or 'the topic ends earlier'}"
                )

    def _sort(self, messages: list[Any]) -> tuple[list[Any], bool]:
        """Return the messages of the range, and whether one or the end beyond it has come."""
        wanted, errors = self._wanted, self._errors
        found: list[Any] = []
        for message in messages:
            error = message.error()
            if error is None:
                if message.offset() >= wanted.stop:
                    return found, True
                found.append(message)
            elif self._is_of_other_reading(message):
                continue
            elif error.code() == errors._PARTITION_EOF:
                # A broker that has just become leader may know of less for a moment.
                if message.offset() >= wanted.stop:
                    return found, True
            elif error.code() in (errors._AUTO_OFFSET_RESET, errors.OFFSET_OUT_OF_RANGE):
                raise LostRecords(
                    wanted.uri,
                    f"records of {wanted} are not there any more: the topic's retention has "
                    "removed them, or the topic was recreated",
                )
            elif _is_permanent(error):
                raise UnreadableFile(f"{wanted.uri}: {explain(error)}")
            else:
                self._client.errors.append(error)
        return found, False

    def _is_of_other_reading(self, message: Any) -> bool:
        """Tell whether an error is of what the client requested before it got this range.

        The library drops messages of an earlier assignment, but not all of its errors.
        """
        if message.topic() is None:  # it is of the connection
            return False
        place = (message.topic(), message.partition())
        return (
            place != (self._wanted.topic, self._wanted.partition)
            or 0 <= message.offset() < self._start
        )


_PERMANENT = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "_SSL",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "TOPIC_EXCEPTION",
    }
)
"""The names of errors that waiting does not heal."""

_REMEDIES = {
    "_AUTHENTICATION": "check sasl.username and sasl.password in the file of EDL_KAFKA_CONFIG",
    "SASL_AUTHENTICATION_FAILED": "check sasl.username and sasl.password in the file of "
    "EDL_KAFKA_CONFIG",
    "TOPIC_AUTHORIZATION_FAILED": "its administrator must allow this user to read and describe it",
    "_SSL": "check security.protocol and ssl.ca.location in the file of EDL_KAFKA_CONFIG",
    "_UNKNOWN_TOPIC": "check the name of the topic",
    "UNKNOWN_TOPIC_OR_PART": "check the name of the topic",
    "_TRANSPORT": "check host and port, and security.protocol in the file of EDL_KAFKA_CONFIG",
    "_ALL_BROKERS_DOWN": "check host and port, and security.protocol in the file of "
    "EDL_KAFKA_CONFIG",
    "_RESOLVE": "check the name of the host",
}


def _is_permanent(error: Any) -> bool:
    return error.name() in _PERMANENT


def explain(error: Any) -> str:
    """Return an error of the client in words, with what to do."""
    if isinstance(error, Exception):  # the library's exceptions hold an error of its own
        error = error.args[0] if error.args else error
    name = error.name() if hasattr(error, "name") else ""
    text = error.str() if hasattr(error, "str") else str(error)
    remedy = _REMEDIES.get(name, "")
    return f"{text}; {remedy}" if remedy else text
