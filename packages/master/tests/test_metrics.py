"""Metrics: every name in one place, no label without bounds, several jobs in one process."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edl_master.core.parameters.statistics import ServerStatistics, TableStatistics
from edl_master.metrics.instruments import Metrics, Served
from edl_master.metrics.job import TableCollector
from edl_master.metrics.processes import (
    ServersCollector,
    UsageCollector,
    WorkerCounters,
    usage_of_servers,
)
from edl_proto.v1 import job_pb2
from edl_runtime.monitoring.process_usage import ProcessUsage


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def samples_of(counters: WorkerCounters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    metrics = Metrics()
    metrics.add(counters)
    own = samples(Metrics())
    return {key: value for key, value in samples(metrics).items() if key not in own}


def test_two_jobs_have_two_registries() -> None:
    one, other = Metrics(), Metrics()
    one.parameter_bytes.labels("sent").inc(7)
    assert samples(one)["edl_parameter_bytes_total", (("direction", "sent"),)] == 7
    assert samples(other)["edl_parameter_bytes_total", (("direction", "sent"),)] == 0


def test_what_workers_counted_adds_up_and_stays_when_they_are_gone() -> None:
    counters = WorkerCounters()
    counters.add(0, "a", {"edl_worker_steps_total": 3.0})
    counters.add(0, "a", {"edl_worker_steps_total": 5.0})
    counters.add(1, "b", {"edl_worker_steps_total": 10.0})
    counters.forget(0, "a")
    counters.add(0, "c", {"edl_worker_steps_total": 1.0})
    assert samples_of(counters) == {("edl_worker_steps_total", ()): 16.0}


def test_an_instance_that_is_not_current_counts_on_and_does_not_begin() -> None:
    counters, steps = WorkerCounters(), "edl_worker_steps_total"
    counters.add(0, "a", {steps: 3.0})
    counters.add(0, "a", {steps: 5.0}, is_current=False)  # it leaves
    counters.add(0, "made up", {steps: 100.0}, is_current=False)
    counters.forget(0, "a")
    counters.add(0, "a", {steps: 5.0}, is_current=False)  # it was thought dead
    assert samples_of(counters) == {(steps, ()): 5.0}


def test_of_a_worker_only_the_present_instance_is_remembered() -> None:
    counters = WorkerCounters()
    memory = "edl_worker_resident_memory_bytes"
    for number in range(1000):
        counters.add(0, f"instance-{number}", {memory: 7.0, "edl_worker_steps_total": 1.0})
    assert samples_of(counters) == {("edl_worker_steps_total", ()): 1000.0}, "each began at 0"
    counters.add(1, "other", {memory: 30.0})
    assert counters.usage().resident_nbytes == 37
    counters.forget(0, "instance-0")  # the platform knows the first one alone
    assert counters.usage().resident_nbytes == 37


def test_no_worker_can_hide_the_memory_of_others() -> None:
    counters, memory = WorkerCounters(), "edl_worker_resident_memory_bytes"
    counters.add(0, "a", {memory: 100.0})
    for made_up in (-(2.0**62), -1.0, math.nan, -math.inf):
        counters.add(1, "b", {memory: made_up})
        assert counters.usage().resident_nbytes == 100


def test_processor_time_stays_and_memory_goes_with_an_instance() -> None:
    counters = WorkerCounters()
    cpu, memory = "edl_worker_cpu_seconds_total", "edl_worker_resident_memory_bytes"
    counters.add(0, "a", {cpu: 2.0, memory: 100.0})
    counters.add(0, "a", {cpu: 3.0, memory: 70.0})
    counters.add(1, "b", {cpu: 1.0, memory: 30.0})
    assert counters.usage() == ProcessUsage(4.0, 100)
    counters.forget(0, "a")
    assert counters.usage() == ProcessUsage(4.0, 30)
    assert samples_of(counters) == {(cpu, ()): 4.0}, "memory of roles is another metric"


def test_metrics_of_each_parameter_server_are_reported_and_add_up() -> None:
    statistics = {
        0: ServerStatistics(10, 20, 3, 0.5, 1.5, 1000),
        1: ServerStatistics(1, 2, 3, 4, 5, 6),
    }
    servers = [job_pb2.ParameterServerStatus(state=each) for each in ("serving", "starting")]
    metrics = Metrics()
    metrics.add(ServersCollector(lambda: servers, lambda: statistics))
    metrics.add(UsageCollector({"parameter_server": lambda: usage_of_servers(statistics)}))
    told = samples(metrics)
    assert told["edl_parameter_servers", (("state", "serving"),)] == 1
    sent = ("edl_parameter_server_bytes_total", (("direction", "sent"), ("server", "0")))
    assert told[sent] == 20
    assert told["edl_parameter_server_requests_total", (("server", "1"),)] == 3
    assert told["edl_process_cpu_seconds_total", (("role", "parameter_server"),)] == 6.5
    assert told["edl_process_resident_memory_bytes", (("role", "parameter_server"),)] == 1006


def test_what_a_server_has_served_is_the_sum_over_its_methods() -> None:
    metrics = Metrics()
    assert metrics.served_so_far() == Served(0, 0, 0, 0.0)
    metrics.parameter_request_duration.labels("read").observe(0.25)
    metrics.parameter_request_duration.labels("read").observe(0.25)
    metrics.parameter_request_duration.labels("prepare").observe(0.5)
    metrics.parameter_bytes.labels("sent").inc(7)
    assert metrics.served_so_far() == Served(0, 7, 3, 1.0)


def test_labels_and_sums_of_histograms_are_carried() -> None:
    counters = WorkerCounters()
    told = {
        'edl_worker_tasks_total{outcome="completed",type="training"}': 2.0,
        'edl_worker_step_duration_seconds_sum{phase="compute"}': 0.5,
        'edl_worker_step_duration_seconds_count{phase="compute"}': 4.0,
    }
    counters.add(0, "a", told)
    labels = (("outcome", "completed"), ("type", "training"))
    phase = (("phase", "compute"),)
    assert samples_of(counters) == {
        ("edl_worker_tasks_total", labels): 2.0,
        ("edl_worker_step_duration_seconds_sum", phase): 0.5,
        ("edl_worker_step_duration_seconds_count", phase): 4.0,
    }


@pytest.mark.parametrize(
    "series",
    [
        "edl_job_info",
        "up_total",
        "edl_worker_failures_total",  # the master's own
        "edl_worker_steps_sum",
        "edl_worker_steps",
        'edl_worker_steps_total{a="b"}',
        'edl_worker_records_total{a="b"}',
        "edl_worker_records_total",
        'edl_worker_records_total{type="training"',
        'edl_worker_records_total{type="training"}x',
        'edl_worker_records_total{type="a\nb"}',
        'edl_worker_tasks_total{type="training",outcome="completed"}',
    ],
)
def test_a_worker_adds_no_series_of_its_own(series: str) -> None:
    counters = WorkerCounters()
    counters.add(0, "a", {series: 1.0})
    assert samples_of(counters) == {}


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -3.0, 1e308])
def test_a_figure_that_no_counter_has_changes_nothing(value: float) -> None:
    counters = WorkerCounters()
    series = {"edl_worker_steps_total": 2.0, "edl_worker_resident_memory_bytes": 7.0}
    counters.add(0, "a", series)
    counters.add(0, "a", dict.fromkeys(series, value) if not math.isfinite(value) else series)
    counters.add(1, "b", {"edl_worker_steps_total": value})
    assert samples_of(counters) == {("edl_worker_steps_total", ()): 2.0}
    assert counters.usage().resident_nbytes < 8


def test_only_so_many_series_are_taken() -> None:
    counters = WorkerCounters()
    counters.add(0, "a", {f'edl_worker_records_total{{type="{n}"}}': 1.0 for n in range(10_000)})
    assert len(samples_of(counters)) == 200


def test_rows_of_tables_are_reported_by_table() -> None:
    metrics = Metrics()
    tables = [TableStatistics()]
    metrics.add(TableCollector(lambda: tables[-1]))
    assert b"edl_embedding" not in metrics.text()
    tables.append(TableStatistics({"users": 3, "items": 0}, 4096))
    told = samples(metrics)
    assert told["edl_embedding_rows", (("table", "users"),)] == 3
    assert told["edl_embedding_rows", (("table", "items"),)] == 0
    assert told["edl_embedding_bytes", ()] == 4096
