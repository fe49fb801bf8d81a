"""Every metric of the builder, by name, in one place. No label is unbounded."""

from __future__ import annotations

from collections import Counter as Counting
from collections.abc import Callable, Iterable, Iterator, Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from edl_builder.core.build import Build, Phase
from edl_builder.core.failure import Reason
from edl_runtime.monitoring.process_usage import usage_of_this_process

_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1200, 3600)


class Metrics:
    """The metrics of one builder."""

    def __init__(self) -> None:
        # The series of creation times would double what Prometheus stores.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped
        self.registry = CollectorRegistry()
        self.builds = Counter(
            "edl_image_builds_total",
            "Finished requests for images: built, reused, merged, failed, cancelled.",
            ["result"],
            registry=self.registry,
        )
        for result in ("built", "reused", "merged", "failed", "cancelled"):
            self.builds.labels(result)
        self.duration = Histogram(
            "edl_image_build_duration_seconds",
            "Time from the request to an image that can be pulled.",
            ["result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        for result in ("built", "reused"):
            self.duration.labels(result)
        self.failures = Counter(
            "edl_image_build_failures_total",
            "Builds that failed, by reason.",
            ["reason"],
            registry=self.registry,
        )
        for reason in Reason:
            self.failures.labels(str(reason))
        self.received = Counter(
            "edl_image_build_received_bytes_total",
            "Bytes of archives received.",
            registry=self.registry,
        )
        self.cached_layers = Counter(
            "edl_image_build_layers_total",
            "Steps of builds, by whether they came from the cache of the engine.",
            ["cache"],
            registry=self.registry,
        )
        for cache in ("hit", "miss"):
            self.cached_layers.labels(cache)
        self.refused = Counter(
            "edl_image_build_refusals_total",
            "Calls that were refused before they became builds, by reason.",
            ["reason"],
            registry=self.registry,
        )
        for reason in Reason:
            self.refused.labels(str(reason))
        self.restarts = Counter(
            "edl_image_builds_recovered_total",
            "Builds that were started again after a restart of the builder.",
            registry=self.registry,
        )
        self.internal_errors = Counter(
            "edl_internal_errors_total",
            "Calls and builds that failed with an internal error.",
            registry=self.registry,
        )
        self.up = Gauge(
            "edl_image_builder_ready",
            "1 if the engine answered when it was last asked.",
            registry=self.registry,
        )
        self.registry.register(_Usage())

    def watch(self, phases: Callable[[], Iterable[Phase]]) -> None:
        """Export the number of open builds by phase."""
        self.registry.register(_OpenBuilds(phases))

    def watch_spans(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Export the number of ``sent`` and ``lost`` spans for OpenTelemetry."""
        self.registry.register(_Spans(counts))

    def count(self, build: Build) -> None:
        """Count a build that has ended."""
        if build.result is not None:
            result = "reused" if build.result.reused else "built"
            self.duration.labels(result).observe(build.result.seconds)
            cached = build.result.cached_layers
            self.cached_layers.labels("hit").inc(cached)
            self.cached_layers.labels("miss").inc(build.result.layers - cached)
        else:
            result = str(build.phase)
            if build.failure is not None:
                self.failures.labels(str(build.failure.reason)).inc()
                self.internal_errors.inc(build.failure.reason is Reason.INTERNAL)
        self.builds.labels(result).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _Usage(Collector):
    def collect(self) -> Iterator[Metric]:
        usage = usage_of_this_process()
        cpu = CounterMetricFamily(
            "edl_process_cpu_seconds", "Processor time of all processes of a role.", labels=["role"]
        )
        cpu.add_metric(["builder"], usage.cpu_s)
        yield cpu
        memory = GaugeMetricFamily(
            "edl_process_resident_memory_bytes",
            "Memory of the current processes of a role.",
            labels=["role"],
        )
        memory.add_metric(["builder"], usage.resident_nbytes)
        yield memory


class _Spans(Collector):
    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "edl_spans",
            "Spans for OpenTelemetry, by whether the collector has accepted them.",
            labels=["result"],
        )
        for result, count in self._counts().items():
            family.add_metric([result], count)
        yield family


class _OpenBuilds(Collector):
    def __init__(self, phases: Callable[[], Iterable[Phase]]) -> None:
        self._phases = phases

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "edl_image_builds_open", "Builds that have not ended, by phase.", labels=["phase"]
        )
        counts = Counting(self._phases())
        for phase in Phase:
            if not phase.is_final:
                family.add_metric([str(phase)], counts[phase])
        yield family
