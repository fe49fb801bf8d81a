"""Metrics: every name in one place, no label without bounds, several jobs in one process."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from edl_master.core.identifiers import Version
from edl_master.core.parameters.status import PlaneStatus, TableFigures
from edl_master.metrics import Metrics, TableCollector, WorkerCounters


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def carried(counters: WorkerCounters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    metrics = Metrics()
    metrics.add(counters)
    return {key: value for key, value in samples(metrics).items() if "edl_worker_" in key[0]}


def test_two_jobs_have_two_registries() -> None:
    one, other = Metrics(), Metrics()
    one.parameter_bytes.labels("sent").inc(7)
    assert samples(one)["edl_parameter_bytes_total", (("direction", "sent"),)] == 7
    assert ("edl_parameter_bytes_total", (("direction", "sent"),)) not in samples(other)


def test_what_workers_counted_adds_up_and_stays_when_they_are_gone() -> None:
    counters = WorkerCounters()
    counters.add("a", {"edl_worker_steps_total": 3.0})
    counters.add("a", {"edl_worker_steps_total": 5.0})
    counters.add("b", {"edl_worker_steps_total": 10.0})
    counters.forget("a")
    counters.add("c", {"edl_worker_steps_total": 1.0})
    assert carried(counters) == {("edl_worker_steps_total", ()): 16.0}


def test_labels_and_sums_of_histograms_are_carried() -> None:
    counters = WorkerCounters()
    told = {
        'edl_worker_tasks_total{outcome="completed",type="training"}': 2.0,
        'edl_worker_step_duration_seconds_sum{phase="compute"}': 0.5,
        'edl_worker_step_duration_seconds_count{phase="compute"}': 4.0,
    }
    counters.add("a", told)
    labels = (("outcome", "completed"), ("type", "training"))
    phase = (("phase", "compute"),)
    assert carried(counters) == {
        ("edl_worker_tasks_total", labels): 2.0,
        ("edl_worker_step_duration_seconds_sum", phase): 0.5,
        ("edl_worker_step_duration_seconds_count", phase): 4.0,
    }


def test_only_so_many_series_of_known_form_are_taken() -> None:
    counters = WorkerCounters()
    counters.add(
        "a",
        {
            "edl_job_info": 1.0,
            "up_total": 1.0,
            'edl_worker_steps_total{a="b"': 1.0,
            'edl_worker_steps_total{a="b"}x': 1.0,
            'edl_worker_steps_total{a="b\nc"}': 1.0,
            "edl_worker_steps": 1.0,
        },
    )
    assert carried(counters) == {}
    counters.add("b", {f'edl_worker_steps_total{{a="{n}"}}': 1.0 for n in range(10_000)})
    assert len(carried(counters)) <= 200


def test_rows_of_tables_are_reported_by_table() -> None:
    metrics = Metrics()
    plane: list[PlaneStatus] = []
    metrics.add(TableCollector(lambda: plane[-1] if plane else None))
    assert b"edl_embedding" not in metrics.text()
    plane.append(_plane({}, 0))
    assert b"edl_embedding" not in metrics.text()
    plane.append(_plane({"users": 3, "items": 0}, 4096))
    told = samples(metrics)
    assert told["edl_embedding_rows", (("table", "users"),)] == 3
    assert told["edl_embedding_rows", (("table", "items"),)] == 0
    assert told["edl_embedding_bytes", ()] == 4096


def _plane(rows: dict[str, int], nbytes: int) -> PlaneStatus:
    return PlaneStatus(
        version=Version(1),
        learning_rate=0.1,
        records_applied=1,
        gradients_applied=1,
        gradients_rejected={},
        staleness_total=0,
        accumulated=0,
        step_permits_held=0,
        open_tasks=1,
        tables=TableFigures(rows, nbytes),
    )
