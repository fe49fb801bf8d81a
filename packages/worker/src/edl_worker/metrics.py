"""Every metric of a worker, in one place.

Workers come and go, and their counts must survive them: heartbeats carry the counters to the
master, which exports the sums over all workers of the job.
"""

from __future__ import annotations

from collections.abc import Iterator

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edl_runtime.monitoring.process_usage import usage_of_this_process
from edl_worker.core.push_pipeline import PushOutcome
from edl_worker.core.tasks import TaskType

# From a cheap step of a sparse model to a heavy one on a CPU.
_STEP_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class WorkerMetrics:
    """The metrics of one worker process."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped
        self.registry = CollectorRegistry()
        self.steps = Counter(
            "edl_worker_steps",
            "Minibatches that this worker computed and the master applied.",
            registry=self.registry,
        )
        self._records = Counter(
            "edl_worker_records",
            "Records of completed tasks.",
            ["type"],
            registry=self.registry,
        )
        self._tasks = Counter(
            "edl_worker_tasks",
            "Tasks by outcome: completed, failed, lost, returned.",
            ["type", "outcome"],
            registry=self.registry,
        )
        self._pushes = Counter(
            "edl_worker_pushes",
            "Gradients pushed, by the master's reply.",
            ["outcome"],
            registry=self.registry,
        )
        for type_ in TaskType:
            self._records.labels(type_.label)
            for outcome in ("completed", "failed", "lost", "returned"):
                self._tasks.labels(type_.label, outcome)
        for push in PushOutcome:
            self._pushes.labels(push.name.lower())
        step_seconds = Histogram(
            "edl_worker_step_duration_seconds",
            "Time of one training step: waiting for data, computing, waiting for exchanges.",
            ["phase"],
            buckets=_STEP_BUCKETS_S,
            registry=self.registry,
        )
        self.input_s = step_seconds.labels("input")
        self.compute_s = step_seconds.labels("compute")
        self.exchange_s = step_seconds.labels("exchange")
        self.registry.register(_Usage())

    def record_task_end(self, type_: TaskType, outcome: str, records: int = 0) -> None:
        """Count a task: completed, failed, lost, returned."""
        self._tasks.labels(type_.label, outcome).inc()
        if records:
            self._records.labels(type_.label).inc(records)

    def count_push(self, outcome: PushOutcome) -> None:
        self._pushes.labels(outcome.name.lower()).inc()

    def step_summary(self) -> str:
        """Return where the time of training steps went, for a log."""
        counted = self.counters()
        name = "edl_worker_step_duration_seconds"
        parts = []
        for phase in ("input", "compute", "exchange"):
            labels = f'{{phase="{phase}"}}'
            steps = counted.get(f"{name}_count{labels}", 0)
            if steps:
                mean_ms = 1000 * counted[f"{name}_sum{labels}"] / steps
                parts.append(f"{phase} {mean_ms:.2f} ms")
        steps = counted.get("edl_worker_steps_total", 0)
        return f"{steps:.0f} steps: {', '.join(parts)}" if parts else "no steps"

    def counters(self) -> dict[str, float]:
        """Return everything that is not 0, by name with labels as Prometheus writes them."""
        return {
            f"{sample.name}{_labels(sample.labels)}": sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.value and not sample.name.endswith("_bucket")
        }


class _Usage(Collector):
    def collect(self) -> Iterator[Metric]:
        usage = usage_of_this_process()
        yield CounterMetricFamily(
            "edl_worker_cpu_seconds", "Processor time of this worker.", value=usage.cpu_s
        )
        yield GaugeMetricFamily(
            "edl_worker_resident_memory_bytes",
            "Memory of this worker.",
            value=usage.resident_nbytes,
        )


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"
