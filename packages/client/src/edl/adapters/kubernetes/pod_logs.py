"""The logs of a cluster job: those of pods that exist, and the record's of those that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edl.core.job_backend import JobLogLine
from edl_proto.kubernetes import objects

JsonObject = dict[str, Any]

ListPods = Callable[[], Sequence[JsonObject]]
ReadLog = Callable[[str, Mapping[str, str]], str]
ReadRecord = Callable[[], Mapping[str, Sequence[str]]]


@dataclass(slots=True)
class _Position:
    """How far the log of one pod has been given."""

    stamp: str = ""
    last: str = ""
    ended: bool = False


@dataclass(slots=True)
class PodLogs:
    """Reads all or some logs of a job; see ``JobBackend.logs`` for master, worker and tail.

    Attributes:
        list_pods: the job's pods.
        read_log: the log of a pod by its name, with parameters; empty if there is none yet.
        read_record: the recorded lines, by ``master`` and ``worker-N``.
    """

    list_pods: ListPods
    read_log: ReadLog
    read_record: ReadRecord
    master: bool
    worker: int | None
    tail: int | None
    _seen: dict[str, _Position] = field(default_factory=dict)
    _recorded: dict[str, Sequence[str]] = field(default_factory=dict)
    _given: dict[str, str] = field(default_factory=dict)
    """The last line that was given of a source."""
    _sources: dict[str, str] = field(default_factory=dict)
    """Of the pods that were seen."""

    def poll(self, final: bool = False) -> Iterator[JobLogLine]:
        pods = sorted((pod for pod in self.list_pods() if self._is_wanted(_source(pod))), key=_rank)
        first = not self._seen and not self._recorded
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
            for line in self._lines(name, first):
                self._given[source] = line
                yield JobLogLine(source, line)

    def workers(self) -> list[int]:
        sources = {_source(pod) for pod in self.list_pods()} | set(map(_named, self.read_record()))
        return sorted(int(source.split()[1]) for source in sources if source.startswith("worker "))

    def _from_record(self, living: set[str], first: bool) -> Iterator[JobLogLine]:
        """Lines of pods that are gone, as far as they were not given before."""
        record = {_named(key): lines for key, lines in self.read_record().items()}
        for source in sorted(record, key=_order):
            if not self._is_wanted(source) or (source in living and not first):
                continue
            if source in living and source == "master":
                continue  # its pod has the whole log
            lines = list(record[source])
            known = self._recorded.get(source)
            if known is None and source in self._given:
                lines = _after(lines, self._given[source])
            elif known is not None:
                lines = _after(lines, known[-1]) if known else lines
            if first and self.tail is not None:
                lines = lines[-self.tail :] if self.tail else []
            self._recorded[source] = record[source]
            for line in lines:
                self._given[source] = line
                yield JobLogLine(source, line)

    def _lines(self, pod: str, first: bool) -> Iterator[str]:
        seen = self._seen.setdefault(pod, _Position())
        query = {"container": objects.CONTAINER, "timestamps": "true"}
        if seen.stamp:
            # The server counts whole seconds: what was given already is left out below.
            query["sinceTime"] = seen.stamp.partition(".")[0].rstrip("Z") + "Z"
        elif first and self.tail is not None:
            query["tailLines"] = str(self.tail)
        for line in self.read_log(pod, query).split("\n"):
            stamp, _, text = line.partition(" ")
            if stamp and stamp > seen.stamp:
                seen.stamp = stamp
                yield text

    def _is_wanted(self, source: str) -> bool:
        if self.worker is not None:
            return source == f"worker {self.worker}"
        return source == "master" or not self.master


def _name(pod: JsonObject) -> str:
    return str(pod["metadata"]["name"])


def _source(pod: JsonObject) -> str:
    labels = pod["metadata"].get("labels") or {}
    role, number = labels.get(objects.LABEL_ROLE, ""), labels.get(objects.LABEL_NUMBER, "")
    return "master" if role == objects.MASTER else f"{_WORDS.get(role, role)} {number}"


_WORDS = {objects.WORKER: "worker", objects.SERVER: "server"}


def _named(key: str) -> str:
    """``worker 3`` for ``worker-3``."""
    kind, _, number = key.partition("-")
    return f"{kind} {number}" if number else kind


def _order(source: str) -> tuple[int, str, int]:
    kind, _, number = source.partition(" ")
    return (kind != "master", kind, int(number) if number.isdigit() else 0)


def _rank(pod: JsonObject) -> tuple[tuple[int, str, int], str]:
    return _order(_source(pod)), pod["metadata"]["creationTimestamp"]


def _after(lines: list[str], last: str) -> list[str]:
    """The lines after the last one that equals ``last``; all of them if there is none."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index] == last:
            return lines[index + 1 :]
    return lines
