"""Statistics of the processes of a job: workers, parameter servers, and the master itself."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edl_master.core.parameters.statistics import ServerStatistics
from edl_master.metrics.families import counters, gauges
from edl_proto.v1 import job_pb2
from edl_runtime.monitoring.process_usage import ProcessUsage

_CPU = "edl_worker_cpu_seconds_total"
CARRIED: Mapping[str, tuple[str, ...]] = {
    _CPU: (),
    "edl_worker_pushes_total": ("outcome",),
    "edl_worker_records_total": ("type",),
    "edl_worker_step_duration_seconds_count": ("phase",),
    "edl_worker_step_duration_seconds_sum": ("phase",),
    "edl_worker_steps_total": (),
    "edl_worker_tasks_total": ("outcome", "type"),
}
"""The counters of workers, with the labels of each.

A worker runs the code of a model file: with other names it could corrupt the metrics of the master.
"""

_LABEL = re.compile(r'([a-z_]{1,30})="([A-Za-z0-9_.-]{1,40})"')
_MAX_SERIES = 200
_MAX_COUNT = 2.0**63
_MEMORY = "edl_worker_resident_memory_bytes"

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counters of an instance at its last heartbeat."""

    instance: str
    taken: Mapping[str, float]


class WorkerCounters(Collector):
    """The sums of the workers' counters, kept when workers are gone.

    A worker sends its counters with every heartbeat, from 0 when its process starts. Only those in
    ``CARRIED`` are taken, and only so many; of each worker, those of one instance are remembered.
    Memory is no counter: that of the present instances adds up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[int, _Counted] = {}
        self._totals: dict[tuple[str, str, _Labels], float] = defaultdict(float)

    def add(
        self, worker: int, instance: str, counters: Mapping[str, float], *, is_current: bool = True
    ) -> None:
        """Take the counters of an instance.

        Args:
            worker: whose.
            instance: which process of it; a new one takes the place of the one before.
            counters: by series.
            is_current: False: it counts only if it was the last to count. A worker can make up any
                number of names, and what was counted of one that is gone MUST not count again.
        """
        with self._lock:
            last = self._last.get(worker)
            is_known = last is not None and last.instance == instance
            if not is_current and not is_known:
                return
            before = last.taken if last is not None and is_known else {}
            taken = {}
            for series, value in counters.items():
                key = _parse(series)
                if not abs(value) < _MAX_COUNT:  # nor is NaN
                    continue
                if key and (key in self._totals or len(self._totals) < _MAX_SERIES):
                    self._totals[key] += max(0.0, value - before.get(series, 0.0))
                    taken[series] = value
                elif series == _MEMORY and value >= 0:
                    taken[series] = value
            self._last[worker] = _Counted(instance, taken)

    def forget(self, worker: int, instance: str) -> None:
        """Forget an instance that is gone; its counts stay."""
        with self._lock:
            if (last := self._last.get(worker)) is not None and last.instance == instance:
                del self._last[worker]

    def usage(self) -> ProcessUsage:
        """Processor time of all instances so far, and memory of the present ones."""
        with self._lock:
            name, _, suffix = _CPU.rpartition("_")
            memory = sum(last.taken.get(_MEMORY, 0.0) for last in self._last.values())
            return ProcessUsage(self._totals.get((name, suffix, ()), 0.0), int(memory))

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            totals = sorted(self._totals.items())
        families: dict[str, Metric] = {}
        for (name, suffix, labels), total in totals:
            kind = "counter" if suffix == "total" else "summary"
            family = families.setdefault(name, Metric(name, "Counted by all workers.", kind))
            family.add_sample(f"{name}_{suffix}", dict(labels), total)
        yield from families.values()


def _parse(series: str) -> tuple[str, str, _Labels] | None:
    """Parse name, suffix and labels of a Prometheus series; None if it is not carried."""
    name, _, rest = series.partition("{")
    labels = _LABEL.findall(rest)
    if CARRIED.get(name) != tuple(label for label, _ in labels):
        return None
    written = ",".join(f'{label}="{value}"' for label, value in labels)
    if series != (f"{name}{{{written}}}" if labels else name):
        return None
    family, _, suffix = name.rpartition("_")
    return family, suffix, tuple(labels)


class SpansCollector(Collector):
    """Spans for OpenTelemetry, where they are exported.

    Args:
        counts: of those that the collector has taken (``sent``), and of the others (``lost``).
    """

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield counters(
            "edl_spans",
            "Spans for OpenTelemetry, by whether the collector has accepted them.",
            "result",
            self._counts(),
        )


class ServersCollector(Collector):
    """The parameter servers, read when Prometheus asks.

    Args:
        servers: as they are.
        statistics: of each server, by its number.
    """

    def __init__(
        self,
        servers: Callable[[], list[job_pb2.ParameterServerStatus]],
        statistics: Callable[[], Mapping[int, ServerStatistics]],
    ) -> None:
        self._servers = servers
        self._statistics = statistics

    def describe(self) -> list[Metric]:
        """Return nothing: registering must not look at them."""
        return []

    def collect(self) -> Iterator[Metric]:
        servers = self._servers()
        states = [server.state for server in servers]
        yield gauges(
            "edl_parameter_servers",
            "Parameter servers by state.",
            "state",
            {state: states.count(state) for state in ("starting", "serving", "gone")},
        )
        restarts = max((server.restarts for server in servers), default=0)
        yield CounterMetricFamily(
            "edl_parameter_server_restarts",
            "Restarts of all parameter servers from a snapshot.",
            value=restarts,
        )
        statistics = {str(server): usage for server, usage in self._statistics().items()}
        traffic = CounterMetricFamily(
            "edl_parameter_server_bytes",
            "Bytes of parameters and gradients, seen from each parameter server.",
            labels=["server", "direction"],
        )
        for server, usage in statistics.items():
            traffic.add_metric([server, "received"], usage.received_nbytes)
            traffic.add_metric([server, "sent"], usage.sent_nbytes)
        yield traffic
        yield counters(
            "edl_parameter_server_requests",
            "Requests that each parameter server has answered.",
            "server",
            {server: usage.requests for server, usage in statistics.items()},
        )
        yield counters(
            "edl_parameter_server_request_seconds",
            "Time that each parameter server took to answer requests.",
            "server",
            {server: usage.requests_s for server, usage in statistics.items()},
        )
        yield counters(
            "edl_parameter_server_cpu_seconds",
            "Processor time of each parameter server.",
            "server",
            {server: usage.cpu_s for server, usage in statistics.items()},
        )
        yield gauges(
            "edl_parameter_server_resident_memory_bytes",
            "Memory of each parameter server.",
            "server",
            {server: usage.resident_nbytes for server, usage in statistics.items()},
        )


def usage_of_servers(statistics: Mapping[int, ServerStatistics]) -> ProcessUsage:
    """Return what all parameter servers use together."""
    return ProcessUsage(
        sum(usage.cpu_s for usage in statistics.values()),
        sum(usage.resident_nbytes for usage in statistics.values()),
    )


class UsageCollector(Collector):
    """Processor time and memory of the job's processes, by role.

    Args:
        roles: what the processes of a role use together.
    """

    def __init__(self, roles: Mapping[str, Callable[[], ProcessUsage]]) -> None:
        self._roles = roles

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        cpu = CounterMetricFamily(
            "edl_process_cpu_seconds", "Processor time of all processes of a role.", labels=["role"]
        )
        memory = GaugeMetricFamily(
            "edl_process_resident_memory_bytes",
            "Memory of the current processes of a role.",
            labels=["role"],
        )
        for role, usage in self._roles.items():
            used = usage()
            cpu.add_metric([role], used.cpu_s)
            memory.add_metric([role], used.resident_nbytes)
        yield cpu
        yield memory


class ApiCollector(Collector):
    """Requests to the API server of Kubernetes.

    Args:
        requests: how many there were, by verb and code; code 0: no answer.
    """

    def __init__(self, requests: Callable[[], Mapping[tuple[str, int], int]]) -> None:
        self._requests = requests

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "edl_kubernetes_requests",
            "Requests to the API server of Kubernetes; code 0 means no answer.",
            labels=["verb", "code"],
        )
        for (verb, code), count in sorted(self._requests().items()):
            family.add_metric([verb, str(code)], count)
        yield family
