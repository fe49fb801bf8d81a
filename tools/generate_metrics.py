"""Write docs/metrics.md from what the services export.

    python tools/generate_metrics.py                    names, types, labels and meanings
    python tools/generate_metrics.py --check            only compare; exit 1 if the page is old
    python tools/generate_metrics.py --values master=FILE builder=FILE ...
                                                        also take sample values from scraped text

Sample values are those of a real run and stay in the page until they are replaced. Run by
``./dev generate``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import edl_builder.metrics
from edl_builder.core.build import Phase
from edl_master.core.effects import JobPhase
from edl_master.core.goodput import Goodput
from edl_master.core.parameters.statistics import ServerStatistics, TableStatistics
from edl_master.core.settings import JobType
from edl_master.core.view import JobView, ProgressView
from edl_master.metrics.instruments import Metrics
from edl_master.metrics.job import JobCollector, TableCollector
from edl_master.metrics.processes import (
    ApiCollector,
    ServersCollector,
    SpansCollector,
    UsageCollector,
)
from edl_proto.v1 import job_pb2
from edl_runtime.monitoring.process_usage import ProcessUsage
from edl_worker.metrics import WorkerMetrics

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "metrics.md"

Values = Mapping[tuple[str, str], str]
"""Sample values by service and metric."""

OPEN_LABELS = {"name", "incarnation", "table", "metric", "server", "method", "code", "verb"}
"""Labels whose values are not all known before a job runs."""

_UNITS = (
    # In names after the units: what a bare number counts is said by its name.
    ("_timestamp_seconds", "seconds since 1970"),
    ("_seconds_total", "seconds"),
    ("_seconds", "seconds"),
    ("_bytes_total", "bytes"),
    ("_bytes", "bytes"),
    ("_ratio", "0 to 1"),
    ("_per_second", "1/second"),
)

HEAD = """\
# Metrics

`./dev generate` writes this page from the metrics that the services export. All names begin with
`edl_`, units are base units, and no label grows with tasks, records or workers; `server`
has a value for each parameter server.

| service | where |
|---|---|
| master | `/metrics` of the job's page, with its token (on Kubernetes by default without) |
| worker | `EDL_METRICS_HOST`, `EDL_METRICS_PORT`, or a port that its log names; the same token |
| builder | `--metrics-port` |

The metrics of a master cover its whole job. Heartbeats and the last message of a worker carry the
worker's counters to the master. The master serves their sums over all workers, those that have
ended included, under the same names; of histograms, it serves `_sum` and `_count`. Parameter
servers report to the master in the same way. After a restart, the master restores preemptions and
failures from the last status, and the other counts of the job from the snapshot; durations, bytes
and outcomes start again at 0.

Sample values come from real runs on one machine. Those of the builder come from five requests to a
builder with a real engine. The requests to Kubernetes come from a job of two workers, one of whose
pods was deleted.
"""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric as a service exports it.

    Attributes:
        labels: names, with all values where these are known.
    """

    name: str
    kind: str
    meaning: str
    labels: Mapping[str, tuple[str, ...]]

    @property
    def unit(self) -> str:
        return next((unit for end, unit in _UNITS if self.name.endswith(end)), "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is old")
    parser.add_argument("--values", nargs="+", default=(), metavar="SERVICE=FILE")
    chosen = parser.parse_args()
    values = known_values(PAGE.read_text() if PAGE.exists() else "")
    for each in chosen.values:
        service, _, path = each.partition("=")
        values |= sample_values(service, Path(path).read_text())
    page = document(values)
    if not chosen.check:
        PAGE.write_text(page)
    elif page != PAGE.read_text():
        print(f"{PAGE.relative_to(ROOT)} is out of date: run ./dev generate", file=sys.stderr)
        return 1
    return 0


def document(values: Values) -> str:
    """The page, with these sample values."""
    parts = [HEAD]
    for service, text in expositions().items():
        rows = [
            "| metric | type | labels | unit | meaning | sample |",
            "|---|---|---|---|---|---|",
            *(_row(family, values.get((service, family.name), "")) for family in families(text)),
        ]
        parts.append(f"## {service.capitalize()}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _row(family: Family, value: str) -> str:
    labels = "; ".join(
        f"`{label}`" + (f": {', '.join(known)}" if known else "")
        for label, known in family.labels.items()
    )
    cells = (f"`{family.name}`", family.kind, labels, family.unit, family.meaning, value)
    return f"| {' | '.join(cells)} |"


def families(text: str) -> Iterator[Family]:
    """The metrics of an exposition, by name."""
    for found in sorted(text_string_to_metric_families(text), key=lambda each: each.name):
        labels: dict[str, dict[str, None]] = {}
        for sample in found.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    labels.setdefault(label, {})[value] = None
        yield Family(
            f"{found.name}_total" if found.type == "counter" else found.name,
            found.type,
            found.documentation,
            {
                label: () if label in OPEN_LABELS or found.name.endswith("_info") else tuple(known)
                for label, known in sorted(labels.items())
            },
        )


def sample_values(service: str, text: str) -> dict[tuple[str, str], str]:
    """A value of each metric of scraped text: the largest, which says more than a 0."""
    found = {}
    for family in families(text):
        samples = [
            (sample.value, sample.name, sample.labels)
            for each in text_string_to_metric_families(text)
            for sample in each.samples
            if sample.name.removesuffix("_sum") == family.name
        ]
        if not samples:
            continue
        value, name, labels = max(samples, key=lambda each: (each[0] == each[0], each[0]))
        shown = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
        suffix = "sum " if name != family.name else ""
        found[service, family.name] = f"{suffix}{f'`{{{shown}}}` ' if shown else ''}{value:.6g}"
    return found


def known_values(page: str) -> dict[tuple[str, str], str]:
    """The sample values of a page."""
    found = {}
    for part in page.split("\n## ")[1:]:
        service = part.split("\n", 1)[0].lower()
        for name, value in re.findall(r"^\| `(\w+)` \|.* \| ([^|]+) \|$", part, re.M):
            found[service, name] = value
    return found


# --- what the services export, with everything in it ---------------------------------------


def expositions() -> dict[str, str]:
    """The text that each service serves, by its name."""
    builder = edl_builder.metrics.Metrics()
    builder.watch(lambda: [Phase.QUEUED])
    builder.watch_spans(lambda: {"sent": 1, "lost": 0})
    registries = {
        "master": master_metrics().registry,
        "worker": WorkerMetrics().registry,
        "builder": builder.registry,
    }
    return {name: _text(registry) for name, registry in registries.items()}


def _text(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def master_metrics() -> Metrics:
    """Return the metrics of a job with tables, parameter servers and Kubernetes."""
    metrics = Metrics()
    usage = ProcessUsage(cpu_s=1.0, resident_nbytes=1)
    statistics = {0: ServerStatistics(1, 1, 1, 1.0, 1.0, 1)}
    serving = job_pb2.ParameterServerStatus(state="serving")
    for collector in (
        JobCollector("name", "incarnation", _view),
        TableCollector(lambda: TableStatistics({"users": 1}, 1)),
        ServersCollector(lambda: [serving], lambda: statistics),
        UsageCollector(dict.fromkeys(("master", "worker", "parameter_server"), lambda: usage)),
        ApiCollector(lambda: {("GET", 200): 1}),
        SpansCollector(lambda: {"sent": 1, "lost": 0}),
    ):
        metrics.add(collector)
    metrics.parameter_request_duration.labels("push")
    return metrics


def _view() -> JobView:
    progress = ProgressView(
        records_done=1,
        records_total=1,
        epoch=1,
        num_epochs=1,
        epochs_done=1,
        is_stream=False,
        steps=1,
        parameter_version=1,
        records_per_s=1.0,
        mean_records_per_s=1.0,
        eta_s=1.0,
        loss=1.0,
        goodput=1.0,
        productive_s=1.0,
        lost_s=Goodput().lost_s,
    )
    return JobView(
        type=JobType.TRAIN,
        phase=JobPhase.RUNNING,
        progress=progress,
        metrics={"accuracy": 1.0},
        workers=(),
        tasks={},
        failure=None,
        seconds=1.0,
        min_workers=1,
        max_workers=1,
        dead_letters=(),
        records_trained=1,
        examples=1,
        examples_of=1,
        records_replayed=0,
        preemptions=0,
        worker_failures=0,
        learning_rate=0.1,
        requested_rates=0,
        predictions=0,
        gradients_rejected=0,
        staleness_mean=0.0,
        saved_version=1,
        warnings=(),
    )


if __name__ == "__main__":
    sys.exit(main())
