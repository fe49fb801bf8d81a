"""The URIs of topics and of their ranges, and the settings of clients.

``kafka://HOST:PORT,HOST:PORT/TOPIC`` is a topic; ``?start=2026-11-30T08:00Z`` leaves out what is
older. ``…/TOPIC/PARTITION/START-STOP`` is a range of one partition, from offset START to STOP,
exclusive: the same records whenever it is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from recordio.errors import RecordError

SCHEME = "kafka://"
CONFIG = "EDL_KAFKA_CONFIG"
"""The environment variable that names a file of client settings."""

_SETTING = "EDL_KAFKA_"
_OWN_SETTINGS = frozenset(
    {
        "group.id",
        "enable.auto.commit",
        "auto.offset.reset",
        # Without these, the end of a range is not found, and what is not committed trains.
        "enable.partition.eof",
        "isolation.level",
    }
)
_SHOWN = 300
"""The number of characters of a wrong address that a message repeats."""

_MAX_PARTITION, _MAX_OFFSET = 2**31 - 1, 2**63 - 1
_TOPIC = re.compile(
    r"kafka://(?P<servers>[^/?#]+)/(?P<topic>[A-Za-z0-9._-]{1,249})"
    r"(?:/(?P<partition>[0-9]{1,10})/(?P<start>[0-9]{1,19})-(?P<stop>[0-9]{1,19}))?(?:\?start=(?P<since>[^&#]+))?"
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, or what is in it since a time.

    Attributes:
        servers: of the first connection, as ``HOST:PORT,HOST:PORT``.
        name: of the topic.
        since_ms: the earliest time of a record, in milliseconds since 1970; None: any.
    """

    servers: str
    name: str
    since_ms: int | None = None

    @property
    def uri(self) -> str:
        """The URI of the whole topic."""
        return f"{SCHEME}{self.servers}/{self.name}"

    def range(self, partition: int, start: int, stop: int) -> PartitionRange:
        """Return a range of a partition."""
        return PartitionRange(self.servers, self.name, partition, start, stop)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """A range of a partition.

    Attributes:
        servers, topic: as of ``Topic``.
        partition: its number.
        start, stop: offsets; ``stop`` is exclusive.
    """

    servers: str
    topic: str
    partition: int
    start: int
    stop: int

    @property
    def uri(self) -> str:
        """The URI of the range."""
        return f"{SCHEME}{self.servers}/{self.topic}/{self.partition}/{self.start}-{self.stop}"

    def __str__(self) -> str:
        return (
            f"topic {self.topic}, partition {self.partition}, offsets {self.start} to "
            f"{self.stop - 1}"
        )


def is_kafka(uri: str) -> bool:
    """Tell whether a URI is one of a topic or of a range of it."""
    return uri.startswith(SCHEME)


def parse(uri: str) -> Topic | PartitionRange:
    """Return what a URI names.

    Raises:
        RecordError: it names neither a topic nor a range of one.
    """
    if "@" in uri:  # not repeated: there may be a password in it
        raise RecordError(
            "the address of a topic has no user and no password: they are sasl.username and "
            f"sasl.password in the file that {CONFIG} names"
        )
    found = _TOPIC.fullmatch(uri)
    if found is None or (found["partition"] and found["since"]):
        raise RecordError(
            f"{uri[:_SHOWN]}: the address of a topic is kafka://HOST:PORT/TOPIC, with several "
            "brokers kafka://HOST:PORT,HOST:PORT/TOPIC, and "
            "kafka://HOST:PORT/TOPIC?start=2026-11-30T08:00Z for what came since then"
        )
    servers = ",".join(map(_with_port, found["servers"].split(",")))
    if found["partition"]:
        partition, start, stop = (int(found[name]) for name in ("partition", "start", "stop"))
        if not (partition <= _MAX_PARTITION and start <= stop <= _MAX_OFFSET):
            raise RecordError(f"{uri}: a partition has no such offsets; write them as START-STOP")
        return PartitionRange(servers, found["topic"], partition, start, stop)
    return Topic(servers, found["topic"], _milliseconds(uri, found["since"]))


def find_fault(uris: Sequence[str], *, are_stream: bool) -> tuple[str, str] | None:
    """Return what is wrong with the topics among some data, and what to do; None: nothing.

    Args:
        uris: paths and URIs, of which at least one is a topic's.
        are_stream: whether the job trains on what is still to come.
    """
    topics: list[Topic] = []
    for uri in filter(is_kafka, uris):
        try:
            named = parse(uri)
        except RecordError as error:
            return str(error), "Correct the address."
        if isinstance(named, Topic):
            topics.append(named)
        elif are_stream:
            return (
                f"{uri} is a range of a topic, which gets no new records",
                "Name the topic; or leave --window out, to train on the range alone.",
            )
    if not are_stream:
        return None
    if len(topics) < len(uris):
        return (
            "a stream is of files or of topics, not of both",
            "Train on one of them; or write both to one topic.",
        )
    # Positions are by the names of topics, so that they hold when brokers have other addresses.
    names = [topic.name for topic in topics]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        return (
            f"two topics have the name {twice}",
            "Name each topic once, with all brokers of its cluster in one address.",
        )
    return None


def _with_port(server: str) -> str:
    return server if re.search(r":\d+$", server) else f"{server}:9092"


def _milliseconds(uri: str, since: str | None) -> int | None:
    if since is None:
        return None
    try:
        at = datetime.fromisoformat(since)
    except ValueError as error:
        raise RecordError(f"{uri}: {since!r} is no time; write it as 2026-11-30T08:00Z") from error
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1000))  # negative times have other meanings for brokers


def read_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings of clients, by librdkafka's names.

    They come from the file that ``EDL_KAFKA_CONFIG`` names, with a ``name=value`` in each line, and
    from variables: ``EDL_KAFKA_SASL_PASSWORD`` is ``sasl.password``, and overrides the file.

    Raises:
        RecordError: the file cannot be read, a line is no setting, or edl decides the setting.
    """
    settings: dict[str, str] = {}
    if path := environ.get(CONFIG, ""):
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError as error:
            raise RecordError(f"{CONFIG}: {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RecordError(f"{CONFIG}: {path}: it is no text in UTF-8") from error
        for number, line in enumerate(lines, 1):
            name, sign, value = line.partition("=")
            if not line.strip() or line.lstrip().startswith(("#", "!")):
                continue
            if not sign:
                raise RecordError(f"{path}:{number}: a line is a setting as NAME=VALUE")
            settings[name.strip()] = value.strip()
    for variable, value in environ.items():
        if variable.startswith(_SETTING) and variable != CONFIG:
            settings[variable.removeprefix(_SETTING).lower().replace("_", ".")] = value
    for name in _OWN_SETTINGS & settings.keys():
        raise RecordError(f"{name}: edl decides this setting of Kafka itself; remove it")
    settings.pop("bootstrap.servers", None)
    return settings
