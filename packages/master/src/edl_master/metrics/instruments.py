"""Durations, bytes and outcomes of single calls, observed where they occur."""

from __future__ import annotations

import time
from dataclasses import dataclass

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from edl_master.core.parameters.push import PushOutcome

_STEP_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_CALL_BUCKETS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3)
_STALENESS_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64)
_CHECKPOINT_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)

EXIT_REASONS = ("left", "failed", "signal", "preempted")
"""How an instance of a worker ends."""


@dataclass(frozen=True, slots=True)
class Served:
    """The traffic that one process has served of the parameter plane.

    Attributes:
        received_nbytes: of gradients and values.
        sent_nbytes: of values.
        requests: that were answered.
        requests_s: time that this took.
    """

    received_nbytes: int
    sent_nbytes: int
    requests: int
    requests_s: float


class Metrics:
    """The metrics of one job; a registry of its own, so that one process may serve several."""

    def __init__(self) -> None:
        # The series of creation times would double what Prometheus stores.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped
        self.registry = CollectorRegistry()
        self.step_duration = Histogram(
            "edl_step_duration_seconds",
            "Time of one minibatch, by phase.",
            ["phase"],
            buckets=_STEP_BUCKETS,
            registry=self.registry,
        )
        self.step_duration.labels("compute")
        self.parameter_request_duration = Histogram(
            "edl_parameter_request_duration_seconds",
            "Time that the master takes to answer a request of the parameter plane, "
            "with the wait for a step permit.",
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
        for direction in ("received", "sent"):
            self.parameter_bytes.labels(direction)
        self.staleness = Histogram(
            "edl_gradient_staleness",
            "Updates between the version that a gradient was computed from and the one it changed.",
            buckets=_STALENESS_BUCKETS,
            registry=self.registry,
        )
        self.rejected = Counter(
            "edl_gradients_rejected_total",
            "Gradients that were not applied, by reason.",
            ["reason"],
            registry=self.registry,
        )
        for outcome in PushOutcome:
            if outcome is not PushOutcome.APPLIED:
                self.rejected.labels(str(outcome))
        self.exits = Counter(
            "edl_worker_exits_total",
            "Ends of worker instances, by reason.",
            ["reason"],
            registry=self.registry,
        )
        for reason in EXIT_REASONS:
            self.exits.labels(reason)
        self.checkpoint_duration = Histogram(
            "edl_checkpoint_duration_seconds",
            "Time to take a checkpoint: copy blocks updates, write does not.",
            ["phase"],
            buckets=_CHECKPOINT_BUCKETS,
            registry=self.registry,
        )
        for phase in ("copy", "write"):
            self.checkpoint_duration.labels(phase)
        self.snapshot_duration = Histogram(
            "edl_snapshot_duration_seconds",
            "Time to write a snapshot for the next master of the job.",
            buckets=_CHECKPOINT_BUCKETS,
            registry=self.registry,
        )
        self.checkpoint_last_success = Gauge(
            "edl_checkpoint_last_success_timestamp_seconds",
            "When this master or an earlier one took the last checkpoint; 0 if none is known.",
            registry=self.registry,
        )
        self.snapshot_last_success = Gauge(
            "edl_snapshot_last_success_timestamp_seconds",
            "When this master completed its last snapshot; 0 before the first.",
            registry=self.registry,
        )
        self.internal_errors = Counter(
            "edl_internal_errors_total",
            "Calls that failed with an internal error.",
            registry=self.registry,
        )
        Gauge(
            "edl_master_start_timestamp_seconds",
            "When this master started; it changes with each restart of the master.",
            registry=self.registry,
        ).set(time.time())

    def served_so_far(self) -> Served:
        """Return the traffic that this process has served of the parameter plane so far."""
        requests: dict[str, float] = {"_count": 0.0, "_sum": 0.0}
        for family in self.parameter_request_duration.collect():
            for sample in family.samples:
                suffix = sample.name[sample.name.rindex("_") :]
                if suffix in requests:
                    requests[suffix] += sample.value
        nbytes = {
            sample.labels["direction"]: int(sample.value)
            for family in self.parameter_bytes.collect()
            for sample in family.samples
        }
        return Served(nbytes["received"], nbytes["sent"], int(requests["_count"]), requests["_sum"])

    def add(self, collector: Collector) -> None:
        """Serve what this collector collects, too."""
        self.registry.register(collector)

    def text(self) -> bytes:
        """Return everything, in Prometheus's text format."""
        return generate_latest(self.registry)
