"""Ranges of topics of Kafka are read like files: the same records whenever they are read."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import confluent_kafka
import pytest

import recordio
from edl_testing.kafka import KafkaCluster
from recordio.kafka import client, topics
from recordio.kafka.addresses import PartitionRange, Topic, parse, read_settings
from recordio.kafka.topics import Extent


@pytest.fixture(scope="module")
def cluster() -> KafkaCluster:
    return KafkaCluster()


def values(number: int, nbytes: int = 0) -> list[bytes]:
    return [b"%d" % i + b"." * nbytes for i in range(number)]


# --- addresses and settings ---------------------------------------------------------------------


def test_addresses() -> None:
    assert parse("kafka://a:1,b/clicks") == Topic("a:1,b:9092", "clicks")
    assert parse("kafka://a:1/t?start=1970-01-01T00:01Z") == Topic("a:1", "t", 60_000)
    assert parse("kafka://a:1/t?start=1970-01-01") == Topic("a:1", "t", 0), "UTC"
    part = PartitionRange("a:1", "my.clicks_2-x", 3, 100, 2100)
    assert parse(part.uri) == part
    assert part.uri == "kafka://a:1/my.clicks_2-x/3/100-2100"


@pytest.mark.parametrize(
    "uri",
    [
        "kafka://a:1",
        "kafka:///t",
        "kafka://a/t/3",
        "kafka://a/t/0/1-2?start=2026-01-01",
        "kafka://a/t x",
        "kafka://a/t/\u0663/1-2",
        f"kafka://a/t/0/1-{'9' * 5000}",
    ],
)
def test_other_addresses_are_refused_with_the_form_of_a_right_one(uri: str) -> None:
    with pytest.raises(recordio.RecordError, match="kafka://HOST:PORT/TOPIC"):
        parse(uri)


@pytest.mark.parametrize("part", ["0/5-3", "3000000000/0-1", f"0/0-{2**63}"])
def test_offsets_that_no_partition_has_are_refused(part: str) -> None:
    with pytest.raises(recordio.RecordError, match="a partition has no such offsets"):
        parse(f"kafka://a/t/{part}")


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(recordio.RecordError, match=r"sasl\.password") as error:
        parse("kafka://ada:hush@a:1/t")
    assert "hush" not in str(error.value)


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(recordio.RecordError, match="'yesterday' is no time; write it as 2026-"):
        parse("kafka://a/t?start=yesterday")


def test_settings_come_from_a_file_and_variables_override_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# of the team\nsasl.username = me\nsasl.password=a=b\nbootstrap.servers=x\n\n")
    environ = {"EDL_KAFKA_CONFIG": str(file), "EDL_KAFKA_SASL_USERNAME": "you", "HOME": "/"}
    assert read_settings(environ) == {"sasl.username": "you", "sasl.password": "a=b"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("sasl.username me\n", ":1: a line is a setting"),
        ("group.id=g\n", "group.id: edl decides this setting"),
        ("isolation.level=read_uncommitted\n", "edl decides this setting"),
        ("enable.partition.eof=false\n", "edl decides this setting"),
        ("sasl.username=\udcff\n", "it is no text in UTF-8"),
    ],
)
def test_wrong_settings(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(recordio.RecordError, match=said):
        read_settings({"EDL_KAFKA_CONFIG": str(file)})
    with pytest.raises(recordio.RecordError, match="No such file"):
        read_settings({"EDL_KAFKA_CONFIG": str(tmp_path / "none")})


def test_a_setting_that_librdkafka_does_not_know(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDL_KAFKA_SASL_PASSWROD", "x")
    with pytest.raises(recordio.RecordError, match=r"configuration.*sasl.passwrod"):
        recordio.open_source(f"kafka://localhost:{cluster.address[-5:]}/t/0/0-1").count()


def test_a_partition_whose_first_record_is_newer_than_its_end_was() -> None:
    assert topics._extent(120, 100) == Extent(100, 100), "it came between two requests"
    assert topics._extent(-1, 100) == Extent(100, 100)


# --- topics -------------------------------------------------------------------------------------


def test_a_topic_has_the_ranges_of_its_partitions(cluster: KafkaCluster) -> None:
    cluster.write("two", values(3), 0)
    cluster.write("two", values(5), 2)
    uri = cluster.uri("two")
    assert recordio.expand(uri) == [f"{uri}/0/0-3", f"{uri}/2/0-5"]
    assert recordio.expand(f"{uri}/2/1-4") == [f"{uri}/2/1-4"]
    with pytest.raises(recordio.NoSuchData, match="topic two has no partition 7"):
        recordio.expand(f"{uri}/7/1-4")
    extents = topics.list_extents(Topic(cluster.address, "two"))
    assert extents == {0: Extent(0, 3), 1: Extent(0, 0), 2: Extent(0, 5), 3: Extent(0, 0)}


def test_an_unknown_topic(cluster: KafkaCluster) -> None:
    with pytest.raises(recordio.NoSuchData, match="the brokers have no topic 'none'"):
        recordio.expand(cluster.uri("none"))
    with pytest.raises(recordio.NoSuchData):
        recordio.expand(cluster.uri("none"))  # asking has not created it


def test_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics.list_extents, "__defaults__", (0.5,))
    with pytest.raises(recordio.UnreadableFile, match="check host and port"):
        recordio.expand("kafka://127.0.0.1:1/t")
    with pytest.raises(recordio.UnreadableFile, match=r"no record for 1 s: .*Connection refused"):
        list(client.read_messages(PartitionRange("127.0.0.1:1", "t", 0, 0, 5), 0, patience_s=1))


# --- ranges -------------------------------------------------------------------------------------


def test_a_client_that_is_refused_is_replaced(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.write("led", values(1))
    topic = Topic(cluster.address, "led")
    assert topics.list_extents(topic)[0] == Extent(0, 1)
    stale = topics._admin(os.getpid(), cluster.address)

    class Refused:
        def list_offsets(self, *_: object, **__: object) -> None:
            error = confluent_kafka.KafkaError(confluent_kafka.KafkaError.FENCED_LEADER_EPOCH)
            raise confluent_kafka.KafkaException(error)

    with monkeypatch.context() as refused:
        refused.setattr(type(stale), "list_offsets", Refused.list_offsets)
        with pytest.raises(recordio.UnreadableFile):
            topics.list_extents(topic)
    assert topics._admin(os.getpid(), cluster.address) is not stale
    assert topics.list_extents(topic)[0] == Extent(0, 1)


def test_any_range_of_records(cluster: KafkaCluster) -> None:
    written = values(5000)
    cluster.write("long", written)
    source = recordio.open_source(f"{cluster.uri('long')}/0/0-5000")
    assert (source.format, source.columns, source.count()) == ("kafka", None, 5000)
    for start, stop in [(0, 5000), (0, 1), (1023, 1025), (4999, 5000), (7, 7), (4000, 10**9)]:
        assert list(source.read(start, stop)) == written[start:stop]
    index = source.index()
    other = recordio.open_source(source.uri, version=source.version)
    read = other.read(3000, 3100, hint=index.block(3000), end=index.end(3100), exact=True)
    assert list(read) == written[3000:3100]
    assert list(pickle.loads(pickle.dumps(source)).read(0, 9)) == written[:9]
    with pytest.raises(recordio.RecordError, match="ends after 5000"):
        list(source.read(4990, 5001, exact=True))


def test_what_comes_later_does_not_change_a_range(cluster: KafkaCluster) -> None:
    cluster.write("grows", values(10))
    uri = f"{cluster.uri('grows')}/0/2-10"
    before = recordio.open_source(uri)
    assert before.count() == 8
    cluster.write("grows", values(10))
    after = recordio.open_source(uri)
    assert after.index() == before.index()
    assert list(after.read(0, 100)) == values(10)[2:]


def test_transactions_leave_gaps(cluster: KafkaCluster) -> None:
    for number in range(3):
        with cluster.transaction("paid", [b"%d" % number] * 500):
            pass
    (uri,) = recordio.expand(cluster.uri("paid"))
    source = recordio.open_source(uri)
    assert source.count() == 1500 < source.index().nbytes
    assert list(source.read(499, 501)) == [b"0", b"1"]
    assert source.place(501) == "topic paid, partition 0, offset 502", "after a marker"


def test_a_message_without_a_value_is_an_empty_record(cluster: KafkaCluster) -> None:
    cluster.write("null", [b"a", None, b"c"])
    source = recordio.open_source(f"{cluster.uri('null')}/0/0-3")
    assert list(source.read(0, 3)) == [b"a", b"", b"c"]


def test_blocks_end_after_a_mebibyte(cluster: KafkaCluster) -> None:
    cluster.write("large", values(10, nbytes=300_000))
    source = recordio.open_source(f"{cluster.uri('large')}/0/0-10")
    assert source.index().first_records == (0, 4, 8)
    assert [record[:1] for record in source.read(3, 9)] == [b"3", b"4", b"5", b"6", b"7", b"8"]


def test_records_that_retention_has_removed_are_named(cluster: KafkaCluster) -> None:
    for _ in range(8):
        cluster.write("full", values(10, nbytes=200_000))
    floor = topics.list_extents(Topic(cluster.address, "full"))[0].floor
    assert floor > 0, "the broker keeps 5 MB"
    with pytest.raises(
        recordio.LostRecords, match="topic full, partition 0, offsets 0 to 9 are"
    ) as e:
        recordio.open_source(f"{cluster.uri('full')}/0/0-10").count()
    assert pickle.loads(pickle.dumps(e.value)).uri == f"{cluster.uri('full')}/0/0-10"


class Complaint:
    """A message of the library that holds an error."""

    def __init__(self, name: str, topic: str | None, partition: int, offset: int) -> None:
        self._error = confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name))
        self._topic, self._partition, self._offset = topic, partition, offset

    def error(self) -> confluent_kafka.KafkaError:
        return self._error

    def topic(self) -> str | None:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


@pytest.mark.parametrize(
    ("topic", "partition", "offset"), [("t", 0, 5), ("t", 1, 90), ("u", 0, 90)]
)
@pytest.mark.parametrize("name", ["_AUTO_OFFSET_RESET", "_PARTITION_EOF", "_UNKNOWN_TOPIC"])
def test_what_a_kept_client_waited_for_does_not_disturb_the_next_reader(
    name: str, topic: str, partition: int, offset: int
) -> None:
    kept = client.Client(None)
    reading = client._Reading(confluent_kafka, kept, PartitionRange("a", "t", 0, 80, 85), 80, 1.0)
    assert reading._sort([Complaint(name, topic, partition, offset)]) == ([], False)
    assert not kept.errors


def test_errors_of_a_range_end_its_reading() -> None:
    wanted = PartitionRange("a", "t", 0, 80, 85)
    reading = client._Reading(confluent_kafka, client.Client(None), wanted, 80, 1.0)
    with pytest.raises(recordio.LostRecords):
        reading._sort([Complaint("_AUTO_OFFSET_RESET", "t", 0, 80)])
    assert reading._sort([Complaint("_PARTITION_EOF", "t", 0, 85)]) == ([], True)
    with pytest.raises(recordio.UnreadableFile):
        reading._sort([Complaint("_AUTHENTICATION", None, -1, -1001)])


def test_a_client_is_kept_for_the_next_reader_also_of_a_reader_that_ends_early() -> None:
    cluster = KafkaCluster()
    cluster.write("again", values(10))
    source = recordio.open_source(f"{cluster.uri('again')}/0/0-10")

    def idle() -> list[client.Client]:
        return [one for key, kept in client._idle.items() if cluster.address in key for one in kept]

    assert list(source.read(0, 10)) == values(10)
    (kept,) = idle()
    assert list(source.read(0, 3, hint=(0, 0))) == values(3)
    assert idle() == [kept]
    with pytest.raises(recordio.LostRecords):
        recordio.open_source(f"{cluster.uri('again')}/0/100-110").count()
    assert idle() == []
