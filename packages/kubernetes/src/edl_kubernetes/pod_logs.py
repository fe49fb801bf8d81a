"""Reads the logs of a job on Kubernetes: of existing pods, and from the record for former ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edl.plugins.job_status import JobLogLine, LogChoice, LogReader, merge_by_time
from edl_kubernetes.cluster import objects
from edl_kubernetes.core.templates import JsonObject
from edl_runtime.timestamps import parse_rfc3339, rfc3339

ListPods = Callable[[], Sequence[JsonObject]]
ReadLog = Callable[[str, Mapping[str, str]], str]
ReadRecord = Callable[[], Mapping[str, Sequence[str]]]

_Timestamp = tuple[int, int]
"""Seconds since the epoch, and nanoseconds of the second: a float could not tell lines apart."""
_EPOCH: _Timestamp = (0, 0)
_FRACTION = re.compile(r"\.(\d{1,9})\d*")


@dataclass(slots=True)
class PodLogs:
    """The ``JobLogs`` of a job on Kubernetes.

    Attributes:
        list_pods: returns the job's pods.
        read_log: returns the log of a pod by its name, with parameters; empty if there is none yet.
        read_record: returns the recorded lines, by ``master`` and ``worker-N``.
        choice: the logs to read.
    """

    list_pods: ListPods
    read_log: ReadLog
    read_record: ReadRecord
    choice: LogChoice
    _read_until: dict[str, _Timestamp] = field(default_factory=dict)
    """The time of the last line that was read from each pod."""
    _recorded: dict[str, Sequence[str]] = field(default_factory=dict)
    """The recorded lines of each source, as they were read last."""
    _last_lines: dict[str, str] = field(default_factory=dict)
    """The last line that was returned of each source."""
    _sources: dict[str, str] = field(default_factory=dict)
    """The source of each pod, by the pod's name."""
    _readers: dict[str, LogReader] = field(default_factory=dict)

    def poll(self, final: bool = False) -> Iterator[JobLogLine]:
        lines: dict[str, list[JobLogLine]] = {}
        for source, text, at_s in self._poll(final):
            reader = self._readers.setdefault(source, LogReader(source))
            lines.setdefault(source, []).append(reader.read(text, at_s))
        return merge_by_time(lines[source] for source in sorted(lines, key=_order))

    def _poll(self, final: bool) -> Iterator[tuple[str, str, float]]:
        """Yield the source, the text and the time, by the cluster's clock, of each new line."""
        pods = sorted(
            (pod for pod in self.list_pods() if self.choice.includes(_source(pod))), key=_rank
        )
        first = not self._read_until and not self._recorded
        gone = {
            source for name, source in self._sources.items() if name not in set(map(_name, pods))
        }
        if first or gone or final:
            yield from self._from_record({_source(pod) for pod in pods}, first)
            for name in [name for name, source in self._sources.items() if source in gone]:
                self._sources.pop(name, None)
        for pod in pods:
            source, name = _source(pod), _name(pod)
            self._sources[name] = source
            for line, at_s in self._read_new_lines(name, first):
                self._last_lines[source] = line
                yield source, line, at_s

    def workers(self) -> list[int]:
        recorded = {_source_of_key(key) for key in self.read_record()}
        sources = {_source(pod) for pod in self.list_pods()} | recorded
        return sorted(int(source.split()[1]) for source in sources if source.startswith("worker "))

    def _from_record(self, living: set[str], first: bool) -> Iterator[tuple[str, str, float]]:
        """Yield the lines of former pods that were not returned before."""
        record = {_source_of_key(key): lines for key, lines in self.read_record().items()}
        for source in sorted(record, key=_order):
            if not self.choice.includes(source) or (source in living and not first):
                continue
            if source in living and source == "master":
                continue  # its pod has the whole log
            lines = list(record[source])
            known = self._recorded.get(source)
            if known is None and source in self._last_lines:
                lines = _after(lines, self._last_lines[source])
            elif known is not None:
                lines = _after(lines, known[-1]) if known else lines
            if first and (tail := self.choice.tail) is not None:
                lines = lines[-tail:] if tail else []
            self._recorded[source] = record[source]
            for line in lines:
                self._last_lines[source] = line
                yield source, line, 0.0

    def _read_new_lines(self, pod: str, first: bool) -> Iterator[tuple[str, float]]:
        read_until = self._read_until.setdefault(pod, _EPOCH)
        query = {"container": objects.CONTAINER, "timestamps": "true"}
        if read_until != _EPOCH:
            # The server counts whole seconds: lines that were read before are left out below.
            query["sinceTime"] = rfc3339(read_until[0], "seconds")
        elif first and self.choice.tail is not None:
            query["tailLines"] = str(self.choice.tail)
        for line in self.read_log(pod, query).split("\n"):
            stamp, _, text = line.partition(" ")
            written = _parse_timestamp(stamp)
            if written > read_until:
                self._read_until[pod] = max(self._read_until[pod], written)
                yield text, written[0] + written[1] / 1e9


def _parse_timestamp(stamp: str) -> _Timestamp:
    """Parse the time of a line, which is in the time zone of the node."""
    fraction = _FRACTION.search(stamp)
    at_s = parse_rfc3339(_FRACTION.sub("", stamp))
    if at_s is None:
        return _EPOCH
    return int(at_s), int(fraction[1].ljust(9, "0")) if fraction else 0


def _name(pod: JsonObject) -> str:
    return str(pod["metadata"]["name"])


def _source(pod: JsonObject) -> str:
    labels = pod["metadata"].get("labels") or {}
    role, number = labels.get(objects.LABEL_ROLE, ""), labels.get(objects.LABEL_NUMBER, "")
    return "master" if role == objects.MASTER else f"{_WORDS.get(role, role)} {number}"


_WORDS = {objects.WORKER: "worker", objects.SERVER: "server"}


def _source_of_key(key: str) -> str:
    """Return ``worker 3`` for ``worker-3``."""
    kind, _, number = key.partition("-")
    return f"{kind} {number}" if number else kind


def _order(source: str) -> tuple[int, str, int]:
    kind, _, number = source.partition(" ")
    return (kind != "master", kind, int(number) if number.isdigit() else 0)


def _rank(pod: JsonObject) -> tuple[tuple[int, str, int], str]:
    return _order(_source(pod)), pod["metadata"]["creationTimestamp"]


def _after(lines: list[str], last: str) -> list[str]:
    """Return the lines after the last one that equals ``last``; all of them if there is none."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index] == last:
            return lines[index + 1 :]
    return lines
