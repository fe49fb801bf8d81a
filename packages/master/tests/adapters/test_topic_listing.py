"""The records of topics are discovered once, in an order that outlives the master."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import pytest

import recordio
from edl_master.adapters import stream_source, topic_listing
from edl_master.adapters.split_log import SplitLog
from edl_master.adapters.stream_source import StreamSource, open_stream
from edl_master.core.effects import Range
from edl_master.core.windows import Split
from edl_proto.errors import EdlError, ErrorCode
from edl_testing.kafka import KafkaCluster
from recordio import example
from recordio.formats import kafka_range
from recordio.kafka import topics
from recordio.kafka.topics import TopicFacts


class Topics:
    """Topics of a cluster, and the log of a job that reads them."""

    def __init__(self, place: Path) -> None:
        self.cluster = KafkaCluster()
        self.log = place / "splits.jsonl"
        self.facts = TopicFacts("", is_compacted=False)

    def add(self, count: int, partition: int = 0, topic: str = "t", nbytes: int = 1) -> None:
        self.cluster.write(topic, [b"x" * nbytes] * count, partition)

    def open(self, *names: str, allow_gaps: bool = False, **options: bool) -> StreamSource:
        """Open the stream as a new master does."""
        uris = [self.cluster.uri(name) for name in names or ("t",)]
        return open_stream(uris, "", SplitLog(self.log), allow_gaps=allow_gaps, **options)

    def split(self, number: int, place: str, records: int, topic: str = "t") -> Split:
        return Split(number, f"{self.cluster.uri(topic)}/{place}", records)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topics:
    broker = Topics(tmp_path)
    # The broker for tests would let each question wait for its time limit.
    monkeypatch.setattr(topics, "read_facts", lambda topic: broker.facts)
    return broker


def test_what_comes_is_discovered_once_also_by_a_later_master(broker: Topics) -> None:
    broker.add(3, 0)
    broker.add(2, 2)
    stream = broker.open()
    assert stream.discover()[0] == (broker.split(0, "0/0-3", 3), broker.split(1, "2/0-2", 2))
    assert stream.discover() == ((), [])
    broker.add(4, 0)
    broker.add(1, 3)  # a partition that had nothing begins at its beginning
    assert stream.discover()[0] == (broker.split(2, "0/3-7", 4), broker.split(3, "3/0-1", 1))
    broker.add(1, 2)
    later = broker.open()
    assert later.reopen(1, 3) == (
        broker.split(1, "2/0-2", 2),
        broker.split(2, "0/3-7", 4),
        broker.split(3, "3/0-1", 1),
    )
    assert later.discover()[0] == (broker.split(4, "2/2-3", 1),)
    (located,) = later.locate([Range(2, 1, 3)])
    source = recordio.open_source(located.uri, format=located.format)
    assert len(list(source.read(1, 3, hint=(located.block_first_record, 0)))) == 2


def test_several_topics_are_one_stream(broker: Topics) -> None:
    broker.add(1, topic="b")
    broker.add(2, topic="a")
    splits, _ = broker.open("a", "b").discover()
    assert splits == (broker.split(0, "0/0-2", 2, "a"), broker.split(1, "0/0-1", 1, "b"))


def test_a_full_topic_comes_in_parts(broker: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_listing, "_RANGE_OFFSETS", 4)
    broker.add(10)
    stream = broker.open()
    found = [stream.discover()[0] for _ in range(4)]
    places = ["0/0-4", "0/4-8", "0/8-10"]
    records = [4, 4, 2]
    assert found == [
        *((broker.split(n, place, records[n]),) for n, place in enumerate(places)),
        (),
    ]


def lose_records(broker: Topics) -> None:
    """Let the broker remove the first records: it keeps 5 MB."""
    for _ in range(8):
        broker.add(10, nbytes=200_000)


def test_records_that_are_removed_before_they_are_discovered(broker: Topics) -> None:
    broker.add(5)
    broker.open().discover()
    lose_records(broker)
    with pytest.raises(EdlError) as error:
        broker.open().discover()
    assert error.value.code is ErrorCode.DATA_NOT_FOUND
    assert "topic t, partition 0, offsets 5 to " in error.value.what
    assert "--allow-gaps" in error.value.remedy
    (split,), (note,) = broker.open(allow_gaps=True).discover()
    first = int(split.name.rpartition("/")[2].partition("-")[0])
    assert note.kind == "RecordsLost"
    assert f"partition 0, offsets 5 to {first - 1}. The job goes on after them." in note.message


def test_records_that_are_removed_before_they_have_trained(broker: Topics) -> None:
    broker.add(5)
    broker.open().discover()
    lose_records(broker)
    stream = broker.open()
    assert stream.reopen(0, 1) == (broker.split(0, "0/0-5", 5),)
    (located,) = stream.locate([Range(0, 0, 5)])
    with pytest.raises(recordio.LostRecords):  # the worker's report sets the task aside
        recordio.open_source(located.uri).count()


def test_a_later_master_needs_no_broker_to_continue(broker: Topics) -> None:
    broker.add(3000)
    first = broker.open()
    first.discover()
    del broker.cluster._owner
    later = open_stream(["kafka://127.0.0.1:1/t"], "", SplitLog(broker.log))
    ((number, _, records),) = map(astuple, later.reopen(0, 1))
    assert (number, records) == (0, 3000)
    part = [Range(0, 2500, 2600)]
    assert later.locate(part) == first.locate(part)


def test_a_topic_that_was_made_anew_is_another_one(
    broker: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.add(5)
    broker.open().discover()
    broker.cluster = KafkaCluster()
    broker.add(3)
    with pytest.raises(EdlError, match="deleted and recreated"):
        broker.open().discover()
    broker.add(10)
    broker.facts = TopicFacts("one", is_compacted=False)
    stream = broker.open()
    stream.discover()
    broker.facts = TopicFacts("two", is_compacted=False)
    monkeypatch.setattr(topic_listing, "_FACTS_EVERY", 1)
    with pytest.raises(EdlError, match="deleted and recreated"):
        stream.discover()


def test_a_topic_that_was_made_anew_while_no_master_ran(
    broker: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "_COMPACTED_BYTES", 1)
    broker.facts = TopicFacts("one", is_compacted=False)
    broker.add(5)
    stream = broker.open()
    stream.discover()
    broker.facts = TopicFacts("two", is_compacted=False)
    broker.add(10)  # it has more records than the job has read of the other one
    with pytest.raises(EdlError, match="deleted and recreated"):
        broker.open().discover()
    stream.compact(1)
    with pytest.raises(EdlError, match="deleted and recreated"):
        broker.open().discover()


def test_a_topic_is_named_once(broker: Topics) -> None:
    with pytest.raises(EdlError, match="two topics have the name t") as error:
        broker.open("t", "u", "t")
    assert error.value.code is ErrorCode.USAGE


def test_lost_records_are_reported_also_after_a_look_that_fails(
    broker: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.add(5)
    broker.open().discover()
    lose_records(broker)
    stream = broker.open("t", "u", allow_gaps=True)
    with pytest.raises(EdlError, match="no topic 'u'"):
        stream.discover()
    broker.add(1, topic="u")
    assert [note.kind for note in stream.discover()[1]] == ["RecordsLost"]


def test_a_stream_begins_with_a_record_and_not_with_an_aborted_transaction(
    broker: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = example.encode({"x": [1.0]})
    broker.cluster.write("t", [record] * 3)
    stream = broker.open()
    with monkeypatch.context() as aborted:
        aborted.setattr(kafka_range, "read_messages", lambda *_: iter(()))
        with pytest.raises(EdlError, match="the stream has no records yet"):
            stream.compare(None)
    broker.cluster.write("t", [record] * 2)
    assert stream.discover()[0] == (broker.split(0, "0/3-5", 2),)
    assert stream.sample == (record, record)
    assert stream.compare(None).description is not None


def test_a_compacted_topic_is_refused(broker: Topics) -> None:
    broker.add(1)
    broker.facts = TopicFacts("", is_compacted=True)
    with pytest.raises(EdlError, match="topic t is compacted") as error:
        broker.open().compare(None)
    assert "cleanup.policy=delete" in error.value.remedy


def test_a_stream_is_of_topics_or_of_files(broker: Topics, tmp_path: Path) -> None:
    with pytest.raises(EdlError, match="of files or of topics"):
        open_stream([broker.cluster.uri("t"), str(tmp_path)], "", SplitLog(broker.log))
    with pytest.raises(EdlError, match="is a range of a topic, which gets no new"):
        open_stream([f"{broker.cluster.uri('t')}/0/1-2"], "", SplitLog(broker.log))


def test_the_log_keeps_positions_instead_of_what_all_masters_are_done_with(
    broker: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "_COMPACTED_BYTES", 1)
    stream = broker.open()
    for partition in (0, 1, 0, 1):
        broker.add(2, partition)
        stream.discover()
    stream.compact(1)
    assert len(broker.log.read_bytes().splitlines()) == 5, "most splits are needed"
    stream.compact(3)
    assert len(broker.log.read_bytes().splitlines()) == 2
    assert list(stream.names) == ["split 0", "split 1", "split 2", broker.split(3, "1/2-4", 2).name]
    broker.add(1, 0)
    assert stream.discover()[0] == (broker.split(4, "0/4-5", 1),)
    later = broker.open()
    assert later.sample == (b"x", b"x")
    assert later.reopen(3, 5) == (broker.split(3, "1/2-4", 2), broker.split(4, "0/4-5", 1))
    assert later.discover() == ((), [])
    with pytest.raises(EdlError) as error:
        later.reopen(2, 5)
    assert error.value.code is ErrorCode.CHECKPOINT_DAMAGED


def test_records_with_other_fields_end_the_job_or_are_left_to_their_tasks(broker: Topics) -> None:
    broker.cluster.write("t", [example.encode({"x": [1.0]})] * 20)
    broker.open().discover()
    broker.cluster.write("t", [example.encode({"x": [b"text"]})] * 20)
    with pytest.raises(EdlError) as error:
        broker.open().discover()
    assert error.value.code is ErrorCode.SHAPE_MISMATCH
    stream = broker.open(allow_dead_letters=True)
    (split,), (note,) = stream.discover()
    assert (split.records, note.kind) == (20, "DataDiffers")
    broker.cluster.write("t", [example.encode({"x": [b"text"]})] * 20)
    assert stream.discover()[1] == [], "it is told once"
