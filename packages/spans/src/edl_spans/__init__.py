"""Spans of work for a collector of OpenTelemetry.

What sends spans belongs here. Which work is a span, and what is said of it, is decided by the
services that record it.
"""
