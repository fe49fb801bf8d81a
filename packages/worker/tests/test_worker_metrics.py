"""The metrics of one worker."""

from __future__ import annotations

from edl_worker.core.tasks import TaskType
from edl_worker.metrics import WorkerMetrics


def test_counters_are_named_as_prometheus_writes_them() -> None:
    metrics = WorkerMetrics()
    metrics.steps.inc(3)
    metrics.compute_s.observe(0.5)
    metrics.record_task_end(TaskType.TRAINING, "completed", 64)
    counters = metrics.counters()
    assert counters["edl_worker_steps_total"] == 3
    assert counters['edl_worker_records_total{type="training"}'] == 64
    assert counters['edl_worker_tasks_total{outcome="completed",type="training"}'] == 1
    assert counters['edl_worker_step_duration_seconds_sum{phase="compute"}'] == 0.5
    assert not any("_bucket" in name or "_created" in name for name in counters)
    assert "compute 500.00 ms" in metrics.step_summary()
