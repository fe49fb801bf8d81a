"""The builder of images."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from panels import Panel, Query, add, choice, dashboard

INTERVAL = "[$__rate_interval]"
BUILDERS = 'namespace=~"$namespace"'


def build() -> Dashboard:
    """The dashboard."""
    made = dashboard("edl builder", "edl-builder", "The builder: queue, durations, results.")
    made = made.with_variable(
        choice("namespace", "Namespace", "label_values(edl_image_builder_ready, namespace)")
    )
    for row, panels in _ROWS.items():
        made = add(made, row, panels)
    return made


def _panel(title: str, description: str, unit: str, expr: str, legend: str) -> Panel:
    return Panel(title, description, unit, [Query(expr, legend)], of_jobs=False)


_ROWS = {
    "Service": [
        _panel(
            "Ready",
            "1 if the engine answered when it was last asked.",
            "none",
            f"edl_image_builder_ready{{{BUILDERS}}}",
            "{{instance}}",
        ),
        _panel(
            "Open builds",
            "By phase; queued ones wait for a place.",
            "none",
            f"sum by (phase) (edl_image_builds_open{{{BUILDERS}}})",
            "{{phase}}",
        ),
        _panel(
            "Internal errors",
            "Calls and builds per second that failed by a defect of edl.",
            "ops",
            f"rate(edl_internal_errors_total{{{BUILDERS}}}{INTERVAL}) "
            "and on (instance) edl_image_builder_ready",
            "{{instance}}",
        ),
    ],
    "Builds": [
        _panel(
            "Results",
            "Requests per second that ended, by how.",
            "ops",
            f"sum by (result) (rate(edl_image_builds_total{{{BUILDERS}}}{INTERVAL}))",
            "{{result}}",
        ),
        _panel(
            "Time of builds",
            "95 % of requests took less; reused images need no build.",
            "s",
            "histogram_quantile(0.95, sum by (le, result) "
            f"(rate(edl_image_build_duration_seconds_bucket{{{BUILDERS}}}{INTERVAL})))",
            "{{result}}",
        ),
        _panel(
            "Failures",
            "Builds that failed, by reason.",
            "none",
            f"sum by (reason) (edl_image_build_failures_total{{{BUILDERS}}}) > 0",
            "{{reason}}",
        ),
        _panel(
            "Steps from the cache",
            "Share of steps that the engine had already.",
            "percentunit",
            f'sum(edl_image_build_layers_total{{{BUILDERS},cache="hit"}}) '
            f"/ sum(edl_image_build_layers_total{{{BUILDERS}}})",
            "hits",
        ),
        _panel(
            "Refusals",
            "Calls that were refused before they became builds, by reason.",
            "none",
            f"sum by (reason) (edl_image_build_refusals_total{{{BUILDERS}}}) > 0",
            "{{reason}}",
        ),
        _panel(
            "Received",
            "Bytes of archives per second.",
            "Bps",
            f"rate(edl_image_build_received_bytes_total{{{BUILDERS}}}{INTERVAL})",
            "{{instance}}",
        ),
    ],
    "Resources": [
        _panel(
            "Processors",
            "In use by the service; the engine's are not among them.",
            "none",
            f'rate(edl_process_cpu_seconds_total{{{BUILDERS},role="builder"}}{INTERVAL})',
            "{{instance}}",
        ),
        _panel(
            "Memory",
            "In use by the service.",
            "bytes",
            f'edl_process_resident_memory_bytes{{{BUILDERS},role="builder"}}',
            "{{instance}}",
        ),
        _panel(
            "Taken up again",
            "Builds that went on after a restart of the service.",
            "none",
            f"edl_image_builds_recovered_total{{{BUILDERS}}}",
            "{{instance}}",
        ),
    ],
}
