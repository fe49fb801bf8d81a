"""Monitoring of processes: logs, metrics, health and spans."""
