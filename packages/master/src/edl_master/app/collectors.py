"""The collectors of a master's metrics: what each of them reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.registry import Collector

from edl_master.control.job_controller import JobController
from edl_master.metrics.job import JobCollector, TableCollector
from edl_master.metrics.processes import (
    ApiCollector,
    ServersCollector,
    SpansCollector,
    UsageCollector,
    WorkerCounters,
    usage_of_servers,
)
from edl_master.parameters.coordinator import Coordinator
from edl_master.reporting.job_report import JobFacts
from edl_master.server_group.processes import ParameterServers
from edl_runtime.monitoring.process_usage import usage_of_this_process
from edl_spans.export import SpanExport


def build_collectors(
    facts: JobFacts,
    controller: JobController,
    plane: Coordinator,
    worker_counters: WorkerCounters,
    servers: ParameterServers | None,
    span_export: SpanExport,
    api_requests: Callable[[], Mapping[tuple[str, int], int]],
) -> Iterator[Collector]:
    """Yield the collectors of all that the parts of a master count.

    Args:
        servers: None if the master holds the parameters itself.
    """
    yield JobCollector(facts.spec.name, facts.incarnation, controller.view)
    yield TableCollector(plane.tables)
    yield worker_counters
    yield ApiCollector(api_requests)
    if span_export.is_on:
        yield SpansCollector(lambda: span_export.counts)
    usage = {"master": usage_of_this_process, "worker": worker_counters.usage}
    if servers is not None:
        group = servers.group
        yield ServersCollector(servers.status, lambda: group.statistics)
        usage["parameter_server"] = lambda: usage_of_servers(group.statistics)
    yield UsageCollector(usage)
