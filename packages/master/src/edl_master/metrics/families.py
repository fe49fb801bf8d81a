"""Families of samples with one value."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


def gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    """Return a gauge with one value and no labels."""
    return GaugeMetricFamily(name, what, value=value)


def gauges(name: str, what: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Return a family of gauges, one for each label value."""
    family = GaugeMetricFamily(name, what, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def counters(name: str, what: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    """Return a family of counters, one for each label value; ``name`` lacks the ``_total``."""
    family = CounterMetricFamily(name, what, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
