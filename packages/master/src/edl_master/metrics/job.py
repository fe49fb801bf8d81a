"""The state and the counts of a job, read from its view when Prometheus asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from edl_master.core.effects import JobPhase
from edl_master.core.identifiers import TaskType, WorkerState
from edl_master.core.parameters.statistics import TableStatistics
from edl_master.core.settings import JobType
from edl_master.core.view import JobView, TaskCounts
from edl_master.metrics.families import counters, gauge, gauges

_MAIN = {
    JobType.TRAIN: "training",
    JobType.EVALUATE: "evaluation",
    JobType.PREDICT: "prediction",
}


class JobCollector(Collector):
    """The job as its view shows it.

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
        """Return nothing: registering must not look at the job."""
        return []

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        info = InfoMetricFamily(
            "edl_job", "Name, type and incarnation of the job; the value is always 1."
        )
        info.add_metric(
            [], {"name": self._name, "type": str(view.type), "incarnation": self._incarnation}
        )
        yield info
        yield gauges(
            "edl_job_state",
            "1 for the state that the job is in, 0 for the others.",
            "state",
            {str(phase): float(phase is view.phase) for phase in JobPhase},
        )
        yield gauge("edl_job_duration_seconds", "Time since the job started.", view.seconds)
        yield from _progress(view)
        yield from _workers(view)
        yield from _tasks(view)
        for name, what, value in (
            (
                "edl_records_replayed",
                "Records that were computed again after a loss.",
                view.records_replayed,
            ),
            ("edl_steps", "Minibatches applied.", view.progress.steps),
            ("edl_predictions", "Predictions written.", view.predictions),
        ):
            yield CounterMetricFamily(name, what, value=value)


def _progress(view: JobView) -> Iterator[Metric]:
    progress = view.progress
    total = progress.records_total
    yield gauge(
        "edl_job_progress_ratio",
        "Share of the records of the job's main work that are done.",
        progress.records_done / total if total else 0.0,
    )
    yield gauge(
        "edl_job_remaining_seconds",
        "Expected time to the end of the main work; NaN while it is not known.",
        progress.eta_s if progress.eta_s >= 0 else float("nan"),
    )
    yield gauge(
        "edl_stream_records_waiting",
        "Records of a stream that have come and are not trained; 0 for complete data.",
        total - progress.records_done if progress.is_stream else 0,
    )
    yield gauge("edl_job_epoch", "Current epoch, from 1; 0 without epochs.", progress.epoch)
    yield gauge("edl_job_epochs", "Number of epochs of the job.", progress.num_epochs)
    yield gauge(
        "edl_job_records_per_second",
        "Records done per second, recently; unlike a rate of edl_records_total, it has no step "
        "when a new master goes back to its snapshot.",
        progress.records_per_s,
    )
    yield gauge(
        "edl_goodput_ratio",
        "Share of the wanted workers' time that trained the model.",
        progress.goodput,
    )
    yield CounterMetricFamily(
        "edl_worker_productive_seconds",
        "Time that workers spent on work that counted.",
        value=progress.productive_s,
    )
    yield counters(
        "edl_worker_lost_seconds",
        "Time of wanted workers in which they trained nothing, by reason.",
        "reason",
        progress.lost_s,
    )
    yield gauge("edl_loss", "Smoothed training loss.", progress.loss)
    yield gauges(
        "edl_evaluation_metric", "Metrics of the last evaluation, by name.", "metric", view.metrics
    )
    yield gauge(
        "edl_parameter_version",
        "Parameter version: updates since the initial values.",
        progress.parameter_version,
    )
    yield counters(
        "edl_records",
        "Records of the main work that are done.",
        "type",
        {name: progress.records_done if type_ is view.type else 0 for type_, name in _MAIN.items()},
    )


def _workers(view: JobView) -> Iterator[Metric]:
    states = Counter(worker.state for worker in view.workers)
    yield gauges(
        "edl_workers",
        "Workers by state.",
        "state",
        {str(state): states[state] for state in WorkerState},
    )
    yield gauges(
        "edl_workers_bound",
        "Fewest and most workers that the job wants.",
        "bound",
        {"min": view.min_workers, "max": view.max_workers},
    )
    for name, what, value in (
        (
            "edl_worker_preemptions",
            "Preemptions of workers, as by a drained node.",
            view.preemptions,
        ),
        (
            "edl_worker_failures",
            "Ends of workers that count as failures, such as crashes.",
            view.worker_failures,
        ),
    ):
        yield CounterMetricFamily(name, what, value=value)


def _tasks(view: JobView) -> Iterator[Metric]:
    now = GaugeMetricFamily("edl_tasks", "Tasks by state.", labels=["type", "state"])
    ever = CounterMetricFamily(
        "edl_tasks",
        "Tasks done and dead, and further attempts (retried).",
        labels=["type", "outcome"],
    )
    for type_ in TaskType:
        counts = view.tasks.get(type_, TaskCounts())
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
        tables: their sizes now.
    """

    def __init__(self, tables: Callable[[], TableStatistics]) -> None:
        self._tables = tables

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        tables = self._tables()
        if not tables.rows:
            return
        yield gauges(
            "edl_embedding_rows",
            "Rows that training has created, by table.",
            "table",
            tables.rows,
        )
        yield gauge(
            "edl_embedding_bytes",
            "Memory of all embedding tables, with optimizer slots and indexes.",
            tables.nbytes,
        )
