"""Benchmarks: each compares with a named peer or limit in the same run. ``./dev bench``."""
