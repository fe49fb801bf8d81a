"""Finds the records that have come into topics of Kafka since the last look, as ranges.

The positions of a job are in its own log and snapshots, with the parameters that they belong to.
Brokers know nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import recordio
from edl_master.adapters.data import DataFile, open_files
from edl_master.adapters.split_log import SplitEntry, describe
from edl_master.core.effects import LogEvent, Severity
from edl_proto.errors import EdlError, ErrorCode
from recordio.formats.kafka_range import KAFKA
from recordio.kafka import topics
from recordio.kafka.addresses import PartitionRange, Topic, parse
from recordio.kafka.topics import Extent

_RANGE_OFFSETS = 50_000
"""Of a split at most, so that the first records of a full topic train soon."""

_FACTS_EVERY = 60
"""Looks between two questions whether the topic is still the same."""

_GAPS_REMEDY = (
    "Keep records longer (retention.ms of the topic), and train faster: more workers. "
    "--allow-gaps continues without them, and reports what was lost."
)


class TopicListing:
    """The partitions of some topics, with the offset up to which each is known.

    Args:
        patterns: URIs of topics, with a name each.
        option: of the command line, for messages.
        allow_gaps: whether records that are lost are reported and left out, instead of an error.
        positions: as ``positions`` returned them.
    """

    first = "the first records of the stream"

    def __init__(
        self,
        patterns: Sequence[str],
        option: str,
        *,
        allow_gaps: bool,
        positions: Mapping[str, int | str],
    ) -> None:
        self._option = option
        self._allow_gaps = allow_gaps
        self._positions = {key: at for key, at in positions.items() if isinstance(at, int)}
        self._ids = {key: id_ for key, id_ in positions.items() if isinstance(id_, str)}
        self._topics = [named for named in map(parse, patterns) if isinstance(named, Topic)]
        self._lost: list[LogEvent] = []
        self._looks = 0

    def add(self, entries: Iterable[SplitEntry]) -> None:
        """Take ranges as known: they are in the log."""
        for entry in entries:
            known = parse(entry.uri)
            assert isinstance(known, PartitionRange), entry.uri
            self._positions[_key(known.topic, known.partition)] = known.stop
            if entry.version:
                self._ids[known.topic] = entry.version

    def find(self, most: int) -> tuple[list[str], list[LogEvent]]:
        """Return new ranges, at most so many, and what users should know.

        Raises:
            EdlError: DATA_UNREADABLE: brokers cannot be asked now; DATA_NOT_FOUND: records are
                lost; DATA_DAMAGED: a topic is another one, or does not keep its records.
        """
        found: list[PartitionRange] = []
        for topic in self._topics:
            try:
                if self._looks % _FACTS_EVERY == 0:
                    self._check(topic, topics.read_facts(topic))
                extents = topics.list_extents(topic)
            except recordio.RecordError as error:
                raise EdlError(
                    ErrorCode.DATA_UNREADABLE,
                    str(error),
                    where=f"{self._option} {topic.uri}",
                    remedy="Check the topic, and that its brokers can be reached.",
                ) from error
            for partition, extent in sorted(extents.items()):
                found += self._find_new(topic, partition, extent)
        self._looks += 1
        # A look that fails returns nothing, so its notes wait for one that succeeds.
        notes, self._lost = self._lost, []
        return [part.uri for part in found[:most]], notes

    def _check(self, topic: Topic, facts: topics.TopicFacts) -> None:
        if facts.is_compacted:
            raise EdlError(
                ErrorCode.DATA_DAMAGED,
                f"topic {topic.name} is compacted, so a range of it does not keep its records",
                where=f"{self._option} {topic.uri}",
                remedy="Write what should train to a topic with cleanup.policy=delete.",
            )
        if facts.id and self._ids.setdefault(topic.name, facts.id) != facts.id:
            raise _other_topic(topic.name, self._option)

    def _find_new(self, topic: Topic, partition: int, extent: Extent) -> list[PartitionRange]:
        key = _key(topic.name, partition)
        position = self._positions.get(key, extent.floor)  # a new partition has no past
        if extent.end < position:
            raise _other_topic(topic.name, self._option)
        if position < extent.floor:
            lost = topic.range(partition, position, extent.floor)
            if not self._allow_gaps:
                raise EdlError(
                    ErrorCode.DATA_NOT_FOUND,
                    f"records were removed before they trained: {lost}",
                    where=f"{self._option} {topic.uri}",
                    remedy=_GAPS_REMEDY,
                )
            line = f"Records were removed before they trained: {lost}. The job goes on after them."
            self._lost.append(LogEvent("RecordsLost", line, Severity.WARNING))
            self._positions[key] = position = extent.floor
        stop = min(extent.end, position + _RANGE_OFFSETS)
        return [topic.range(partition, position, stop)] if position < stop else []

    def open(self, uris: Sequence[str]) -> list[DataFile]:
        """Read new ranges, for only that tells how many records they have.

        Raises:
            EdlError: DATA_UNREADABLE: brokers do not answer, or have removed records meanwhile.
        """
        return open_files(uris, "", self._option)

    def open_again(self, entries: Sequence[SplitEntry]) -> list[DataFile]:
        """Return ranges that an earlier master has discovered, without asking a broker.

        If their records are lost, the worker that reads them says so.
        """
        return [DataFile(entry.uri, KAFKA, (), _index_of(entry), "") for entry in entries]

    def describe(self, file: DataFile) -> SplitEntry:
        """Return what the log keeps of a range; its version is the id of the topic."""
        named = parse(file.uri)
        assert isinstance(named, PartitionRange), file.uri
        return replace(
            describe(file, with_index=True), version=self._ids.get(named.topic, file.version)
        )

    def positions(self) -> Mapping[str, int | str] | None:
        """Return the offset up to which each partition is known, and the ids of topics.

        Offsets are by ``TOPIC/PARTITION``, and ids by ``TOPIC``.
        """
        return {**self._positions, **self._ids}


def _index_of(entry: SplitEntry) -> recordio.Index:
    return recordio.Index(
        entry.records,
        entry.nbytes,
        tuple(entry.first_records),
        tuple(entry.offsets),
        entry.checksum,
    )


def _key(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def _other_topic(name: str, option: str) -> EdlError:
    return EdlError(
        ErrorCode.DATA_DAMAGED,
        f"topic {name} is not the one that the job has read: it was deleted and recreated",
        where=option,
        remedy="Begin a new job for the new topic, with --init-from and the model of this one: "
        "edl export writes it.",
    )
