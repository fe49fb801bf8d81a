"""For processes of a job that measures nothing: its metrics keep their first values."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


def _nothing(*_, **__):
    """Measure nothing."""


Counter.inc = Gauge.inc = Gauge.dec = Gauge.set = Histogram.observe = _nothing
CollectorRegistry.collect = lambda self: iter(())
