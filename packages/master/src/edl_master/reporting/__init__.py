"""Views of a job for people: its status, events, curves, timeline and spans.

Nothing here changes the job. Metrics for Prometheus are in ``edl_master.metrics``.
"""
