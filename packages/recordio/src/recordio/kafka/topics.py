"""What topics have now: partitions, first offsets, and the ends up to which they are stable."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recordio.errors import NoSuchData, UnreadableFile
from recordio.kafka.addresses import SCHEME, PartitionRange, Topic, parse
from recordio.kafka.client import borrow, explain, library, make

TIMEOUT_S = 10.0
"""How long a request for the state of a topic waits for its answer."""

_FACTS_TIMEOUT_S = 3.0
"""Not every broker, and not for every user, answers such a question."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The records that a partition has.

    Attributes:
        floor: the offset of the first one that is kept and wanted.
        end: the offset after the last one that is committed; what is before it does not change.
    """

    floor: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The properties of a topic, as far as its brokers tell them.

    Attributes:
        id: other than that of an earlier topic of this name; empty: not known.
        is_compacted: whether brokers remove records of which a later one has the key.
    """

    id: str
    is_compacted: bool


def expand(uri: str) -> list[str]:
    """Return the ranges that a topic has now, or the one range that a URI names.

    Raises:
        NoSuchData: there is no such topic or partition, or it has no record.
        UnreadableFile: the brokers refuse, or do not answer.
        RecordError: the URI is wrong.
    """
    named = parse(uri)
    if isinstance(named, PartitionRange):
        topic = Topic(named.servers, named.topic)
        if named.partition not in _list_partitions(topic, TIMEOUT_S):
            raise NoSuchData(f"{uri}: topic {named.topic} has no partition {named.partition}")
        return [named.uri]
    ranges = [
        named.range(partition, extent.floor, extent.end).uri
        for partition, extent in sorted(list_extents(named).items())
        if extent.floor < extent.end
    ]
    if not ranges:
        raise NoSuchData(f"{uri}: the topic has no record{' since then' * bool(named.since_ms)}")
    return ranges


def list_extents(topic: Topic, timeout_s: float = TIMEOUT_S) -> dict[int, Extent]:
    """Return the extent of each partition of a topic.

    Raises:
        NoSuchData: there is no such topic.
        UnreadableFile: the brokers refuse, or do not answer.
    """
    uri = topic.uri
    kafka = library(uri)
    try:
        partitions = _list_partitions(topic, timeout_s)
        spec, since = kafka.admin.OffsetSpec, topic.since_ms
        first = spec.earliest() if since is None else spec.for_timestamp(since)
        ends = _list_offsets(topic, partitions, spec.latest(), timeout_s)
        floors = _list_offsets(topic, partitions, first, timeout_s)
    except kafka.KafkaException as error:
        # This client asks with the leaders that it knows, and brokers that have restarted refuse
        # their old epochs: only a new client learns the new ones soon.
        _admin.cache_clear()
        raise UnreadableFile(f"{uri}: {explain(error)}") from error
    return {number: _extent(floors[number], ends[number]) for number in partitions}


def _extent(floor: int, end: int) -> Extent:
    """Return the extent of a partition, whose end was asked for before its floor.

    There is no floor, -1, without a record since a time; and it may have passed the end meanwhile.
    """
    return Extent(min(floor, end) if floor >= 0 else end, end)


def _list_partitions(topic: Topic, timeout_s: float) -> list[int]:
    uri = topic.uri
    kafka = library(uri)
    with borrow(topic.servers, uri) as client:
        client.errors.clear()
        try:
            # Not the administrator's client: it might create a topic that it asks for.
            found = client.consumer.list_topics(topic.name, timeout=timeout_s).topics[topic.name]
        except kafka.KafkaException as error:
            client.refuse_permanent(uri)
            raise UnreadableFile(f"{uri}: {client.complaint or explain(error)}") from error
    if found.error is None:
        return list(found.partitions)
    if found.error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        raise NoSuchData(f"{uri}: the brokers have no topic {topic.name!r}")
    raise UnreadableFile(f"{uri}: {explain(found.error)}")


def _list_offsets(
    topic: Topic, partitions: Iterable[int], wanted: Any, timeout_s: float
) -> dict[int, int]:
    kafka = library(topic.uri)
    answers = _admin(os.getpid(), topic.servers).list_offsets(
        {kafka.TopicPartition(topic.name, number): wanted for number in partitions},
        isolation_level=kafka.IsolationLevel.READ_COMMITTED,
        request_timeout=timeout_s,
    )
    return {place.partition: answer.result().offset for place, answer in answers.items()}


@functools.cache
def _admin(_process: int, servers: str) -> Any:
    """Return a client for requests about topics; it may be used by several threads."""
    uri = f"{SCHEME}{servers}"
    return make(library(uri).admin.AdminClient, servers, uri, [])


def read_facts(topic: Topic) -> TopicFacts:
    """Return what a topic is; old brokers, and users with few rights, do not learn all of it.

    Raises:
        RecordError: the settings are wrong, or the package is missing.
    """
    kafka = library(topic.uri)
    admin = _admin(os.getpid(), topic.servers)
    resource = kafka.admin.ConfigResource(kafka.admin.ConfigResource.Type.TOPIC, topic.name)
    described = admin.describe_topics(
        kafka.TopicCollection([topic.name]), request_timeout=_FACTS_TIMEOUT_S
    )
    configured = admin.describe_configs([resource], request_timeout=_FACTS_TIMEOUT_S)
    try:
        id_ = str(described[topic.name].result().topic_id)
    except kafka.KafkaException:
        id_ = ""
    try:
        policy = str(configured[resource].result()["cleanup.policy"].value)
    except (kafka.KafkaException, KeyError):
        policy = ""
    return TopicFacts(id_, "compact" in policy)
