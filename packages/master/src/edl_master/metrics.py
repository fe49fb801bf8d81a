"""Every metric of the master, by name, in one place.

What the job itself counts is read from its view when Prometheus asks; what only passes by
(durations, bytes) is observed where it passes. No label is unbounded: no task, record,
worker or process is ever one. Embedding tables are as many as the model has.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from edl_master.core.identifiers import WorkerState
from edl_master.core.parameters.status import PlaneStatus
from edl_master.core.settings import JobType
from edl_master.core.view import JobView
from edl_proto.v1 import job_pb2

_STEP_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_CALL_BUCKETS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3)
_STALENESS_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64)
_CHECKPOINT_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class Metrics:
    """The metrics of one job; a registry of its own, so that one process may serve several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.step_duration = Histogram(
            "edl_step_duration_seconds",
            "Time of one minibatch, by phase.",
            ["phase"],
            buckets=_STEP_BUCKETS,
            registry=self.registry,
        )
        self.parameter_request_duration = Histogram(
            "edl_parameter_request_duration_seconds",
            "Time that the master takes to answer a request of the parameter plane, "
            "waiting for a step permit included.",
            ["method"],
            buckets=_CALL_BUCKETS,
            registry=self.registry,
        )
        self.parameter_bytes = Counter(
            "edl_parameter_bytes_total",
            "Bytes of parameters and gradients, seen from the master.",
            ["direction"],
            registry=self.registry,
        )
        self.staleness = Histogram(
            "edl_gradient_staleness",
            "Updates between the version that a gradient was computed from and the one it met.",
            buckets=_STALENESS_BUCKETS,
            registry=self.registry,
        )
        self.rejected = Counter(
            "edl_gradients_rejected_total",
            "Gradients that were not applied.",
            ["reason"],
            registry=self.registry,
        )
        self.exits = Counter(
            "edl_worker_exits_total",
            "Ends of worker processes.",
            ["reason"],
            registry=self.registry,
        )
        self.checkpoint_duration = Histogram(
            "edl_checkpoint_duration_seconds",
            "Time to take a checkpoint: copy holds everything up, write does not.",
            ["phase"],
            buckets=_CHECKPOINT_BUCKETS,
            registry=self.registry,
        )
        self.snapshot_duration = Histogram(
            "edl_snapshot_duration_seconds",
            "Time to write a snapshot for the next master of the job.",
            buckets=_CHECKPOINT_BUCKETS,
            registry=self.registry,
        )
        self.checkpoint_last_success = Gauge(
            "edl_checkpoint_last_success_timestamp_seconds",
            "When the last checkpoint was complete; 0 before the first.",
            registry=self.registry,
        )
        self.internal_errors = Counter(
            "edl_internal_errors_total",
            "Calls that failed with an internal error.",
            registry=self.registry,
        )

    def add(self, collector: Collector) -> None:
        """Also serve what this collector collects."""
        self.registry.register(collector)

    def text(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(self.registry)


class JobCollector(Collector):
    """What the job counts, read when Prometheus asks.

    Args:
        name: of the job.
        incarnation: of the master.
        view: what the job looks like now.
    """

    def __init__(self, name: str, incarnation: str, view: Callable[[], JobView]) -> None:
        self._name = name
        self._incarnation = incarnation
        self._view = view

    def describe(self) -> list[Metric]:
        """Nothing: registering must not look at the job."""
        return []

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        progress = view.progress
        info = InfoMetricFamily("edl_job", "What job this is.")
        info.add_metric(
            [], {"name": self._name, "type": str(view.type), "incarnation": self._incarnation}
        )
        yield info
        total = progress.records_total
        yield _gauge(
            "edl_job_progress_ratio",
            "Records done of the job's main work, 0 to 1.",
            progress.records_done / total if total else 0.0,
        )
        yield _gauge("edl_goodput_ratio", "Useful time of workers / all.", progress.goodput)
        lost = CounterMetricFamily(
            "edl_worker_lost_seconds",
            "Time that workers were wanted for and that trained nothing, by reason.",
            labels=["reason"],
        )
        for reason, seconds in progress.lost_s.items():
            lost.add_metric([reason], seconds)
        yield lost
        yield _gauge("edl_loss", "Smoothed training loss.", progress.loss)
        yield _gauge("edl_parameter_version", "Updates made.", progress.parameter_version)
        workers = GaugeMetricFamily("edl_workers", "Workers by state.", labels=["state"])
        states = [worker.state for worker in view.workers]
        for state in WorkerState:
            workers.add_metric([str(state)], states.count(state))
        yield workers
        yield from self._tasks(view)
        records = CounterMetricFamily(
            "edl_records", "Records of the main work that are done.", labels=["type"]
        )
        records.add_metric([_MAIN[view.type]], progress.records_done)
        yield records
        for name, what, value in (
            ("edl_records_replayed", "Records computed again.", view.records_replayed),
            ("edl_steps", "Minibatches applied.", progress.steps),
            ("edl_predictions", "Predictions written.", view.predictions),
            ("edl_worker_preemptions", "Workers taken away.", view.preemptions),
            ("edl_worker_failures", "Workers that crashed.", view.worker_failures),
        ):
            yield CounterMetricFamily(name, what, value=value)

    def _tasks(self, view: JobView) -> Iterator[Metric]:
        now = GaugeMetricFamily("edl_tasks", "Tasks by state.", labels=["type", "state"])
        ever = CounterMetricFamily(
            "edl_tasks", "Tasks by what became of them.", labels=["type", "outcome"]
        )
        for type_, counts in view.tasks.items():
            now.add_metric([str(type_), "pending"], counts.pending)
            now.add_metric([str(type_), "leased"], counts.leased)
            ever.add_metric([str(type_), "done"], counts.done)
            ever.add_metric([str(type_), "retried"], counts.retried)
            ever.add_metric([str(type_), "dead"], counts.dead)
        yield now
        yield ever


class TableCollector(Collector):
    """The embedding tables of the job's model, read when Prometheus asks.

    Args:
        plane: what the parameters look like now; None while there are none.
    """

    def __init__(self, plane: Callable[[], PlaneStatus | None]) -> None:
        self._plane = plane

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        plane = self._plane()
        if plane is None or not plane.tables.rows:
            return
        rows = GaugeMetricFamily(
            "edl_embedding_rows", "Rows that training has made, by table.", labels=["table"]
        )
        for table, count in plane.tables.rows.items():
            rows.add_metric([table], count)
        yield rows
        yield _gauge(
            "edl_embedding_bytes",
            "Memory of all embedding tables, slots of the optimizer and indexes included.",
            plane.tables.nbytes,
        )


_MAIN = {
    JobType.TRAIN: "training",
    JobType.EVALUATE: "evaluation",
    JobType.PREDICT: "prediction",
}

_CARRIED = re.compile(r"(edl_worker_[a-z_]{1,60})_(total|sum|count)")
_LABEL = re.compile(r'([a-z_]{1,30})="([A-Za-z0-9_.-]{1,40})"')
_MOST_SERIES = 200

_Labels = tuple[tuple[str, str], ...]


class WorkerCounters(Collector):
    """What workers have counted, summed up and kept when they are gone.

    A worker sends its counters with every heartbeat, from 0 when its process starts. Only
    names of the form ``edl_worker_*`` that end as counters and the sums of histograms do are
    taken, and only so many.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, Mapping[str, float]] = {}
        self._totals: dict[tuple[str, str, _Labels], float] = defaultdict(float)

    def add(self, instance: str, counters: Mapping[str, float]) -> None:
        """Take the counters of an instance."""
        with self._lock:
            before = self._last.get(instance, {})
            for series, value in counters.items():
                key = _parse(series)
                if key and (key in self._totals or len(self._totals) < _MOST_SERIES):
                    self._totals[key] += max(0.0, value - before.get(series, 0.0))
            self._last[instance] = dict(counters)

    def forget(self, instance: str) -> None:
        """An instance is gone; its counts stay."""
        with self._lock:
            self._last.pop(instance, None)

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
    """Name, suffix and labels of a series as Prometheus writes it, if it may be carried."""
    name, _, rest = series.partition("{")
    known = _CARRIED.fullmatch(name)
    labels = _LABEL.findall(rest)
    written = ",".join(f'{label}="{value}"' for label, value in labels)
    # These labels, and nothing else.
    if known is None or (series != f"{name}{{{written}}}" and series != name):
        return None
    return known[1], known[2], tuple(labels)


class ServersCollector(Collector):
    """The parameter servers, read when Prometheus asks.

    Args:
        servers: as they are.
    """

    def __init__(self, servers: Callable[[], list[job_pb2.ParameterServerStatus]]) -> None:
        self._servers = servers

    def describe(self) -> list[Metric]:
        """Nothing: registering must not look at them."""
        return []

    def collect(self) -> Iterator[Metric]:
        servers = self._servers()
        states = [server.state for server in servers]
        found = GaugeMetricFamily(
            "edl_parameter_servers", "Parameter servers by state.", labels=["state"]
        )
        for state in ("starting", "serving", "gone"):
            found.add_metric([state], states.count(state))
        yield found
        restarts = max((server.restarts for server in servers), default=0)
        yield CounterMetricFamily(
            "edl_parameter_server_restarts",
            "How often all parameter servers began again from a snapshot.",
            value=restarts,
        )


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value=value)
