"""Benchmarks are run by hand, so what they are made of is tried here: nothing is timed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.__main__ import names
from bench.measure import started


@pytest.mark.parametrize("name", names())
def test_a_benchmark_can_be_loaded(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").measures)


def test_the_server_of_benchmarks_answers_their_workers() -> None:
    from bench.embeddings import Client
    from bench.transport import Worker

    dim, floats = 4, 100
    with started("bench.peers.plane_server", str(dim), str(floats), "Adam") as line:
        worker = Worker(*line.split(), 4 * floats)
        worker.push()
        worker.pull()
        worker.push()
    with started("bench.peers.plane_server", str(dim)) as line:
        client = Client(*line.split(), dim)
        for number in range(3):
            client.pull(number)
            client.push(number)
        for number in range(4):
            client.exchange(number)
