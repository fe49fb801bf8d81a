"""Exports a span for OpenTelemetry for each build that has ended."""

from __future__ import annotations

from edl_builder.core.build import Build
from edl_spans.export import SpanExport, SpanRecord


def record_span(export: SpanExport, build: Build) -> None:
    """Export a build that has ended, from its request to its end; its failure has no secrets."""
    if not export.is_on:
        return
    facts: dict[str, str | int | bool] = {
        "edl.build": str(build.id),
        "edl.phase": str(build.phase),
        "edl.source": str(build.source),
        "edl.attempts": build.attempts,
    }
    if build.identity is not None:
        facts["edl.repository"] = build.identity.repository
    if build.result is not None:
        facts["edl.image"] = build.result.image
        facts["edl.reused"] = build.result.reused
        facts["edl.layers"] = build.result.layers
        facts["edl.cached_layers"] = build.result.cached_layers
    failure = ""
    if build.failure is not None:
        facts["edl.reason"] = str(build.failure.reason)
        failure = build.failure.what
    ended = build.since if build.finished is None else build.finished
    export.record(SpanRecord("build", build.submitted, ended - build.submitted, facts, failure))
