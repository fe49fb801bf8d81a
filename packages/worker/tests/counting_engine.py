"""The counting model without a framework: each weight says how often its record was trained.

As a program, a worker: ``counting_engine.py HOST:PORT WORKER [GROUP SIGNAL WHEN]``. It kills itself
``before`` or ``after`` it sends this signal in this group of peers, both counted from 1.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from linear_engine import Line, Linear, LinearModel, LinearSource, LinearSteps

import recordio
import recordio.example
from edl_worker.collectives.peers import PeerSignals
from edl_worker.collectives.ring import RingGroup
from edl_worker.core.batch import Batch
from edl_worker.core.job import JobDescription, WirePrecision
from edl_worker.core.layout import PayloadLayout
from edl_worker.core.model_description import ModelDescription, VariableDescription
from edl_worker.core.replicas import Part
from edl_worker.core.row_engine import RowRequest
from edl_worker.core.step_engine import StepResult
from edl_worker.model_file.sample import first_batch
from elasticdl.python.common.constants import Mode

SIZE = 240
STEP_S = 0.002

Array = np.ndarray[Any, Any]


def write_numbers(path: Path) -> None:
    """Write the records, each with its number as its label."""
    with recordio.Writer(str(path)) as writer:
        for number in range(SIZE):
            x = np.zeros(4, np.float32)
            writer.write(recordio.example.encode({"x": x, "label": [number]}))


class CountingSteps(LinearSteps):
    """``updates`` stands for the state of the optimizer."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self.layout = PayloadLayout(
            [
                VariableDescription("count", (SIZE,), "float32", True),
                VariableDescription("updates", (1,), "float32", False),
            ]
        )
        self.counts = np.zeros(SIZE, np.float32)
        self.updates = np.zeros(1, np.float32)

    def describe(self) -> ModelDescription:
        return replace(super().describe(), reduction="sum")

    def gradient(
        self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None
    ) -> StepResult:
        time.sleep(STEP_S)
        gradient = np.zeros(SIZE, np.float32)
        np.subtract.at(gradient, batch.labels.astype(int), 1)
        return StepResult((memoryview(gradient).cast("B"),), (), -float(self.counts.sum()))

    def step(self, batch: Batch) -> float:
        found = self.gradient(batch)
        self.apply([np.frombuffer(found.gradient[0], np.float32)], [])
        return found.loss

    def apply(self, gradient: Sequence[Array], state_delta: Sequence[Array]) -> None:
        self.counts -= gradient[0]
        self.updates += 1

    @property
    def replica_parts(self) -> Sequence[Part]:
        return [Part("float32", SIZE)]

    def pack(self) -> Array:
        return np.concatenate([self.counts, self.updates]).view(np.uint8)

    def assign(self, payload: Array, precision: WirePrecision = WirePrecision.FLOAT32) -> None:
        self.counts, self.updates = (part.copy() for part in self.layout.views(payload, precision))

    def named_values(self) -> Mapping[str, Array]:
        return {"count": self.counts}


class Counting(Linear):
    """The ``Framework`` of the counting model."""

    def load(self, job: JobDescription, context: Mapping[str, Any]) -> LinearModel:
        sample = first_batch(LinearSource(), job, Mode.TRAINING, job.minibatch_size)
        line = Line()
        return LinearModel(Path.cwd(), sample, line, CountingSteps(line))


def die_at(group: int, number: int, when: str) -> None:
    """Have this process kill itself in a generation, at one of the two halves of an all-reduce.

    In shared memory these are signals. In a ring they are the sending of the own chunk, and the
    last chunk that this member adds to.
    """
    groups = 0
    passed = 0

    def enter(make: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            nonlocal groups, passed
            groups, passed = groups + 1, 0
            return make(*args, **options)

        return wrapper

    def pass_half(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **options: Any) -> Any:
            nonlocal passed
            is_last = options.get("is_last", True)
            passed += is_last
            dies = is_last and (groups, passed) == (group, number)
            if dies and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **options)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapper

    for kind, begin, halves in (
        (PeerSignals, "begin", ["send"]),
        (RingGroup, "__init__", ["_send_chunk", "_add_chunk"]),
    ):
        mock.patch.object(kind, begin, enter(getattr(kind, begin))).start()
        for half in halves:
            mock.patch.object(kind, half, pass_half(getattr(kind, half))).start()


if __name__ == "__main__":
    import logging

    from edl_worker.app import build_worker
    from edl_worker.config import from_environment

    logging.basicConfig(level="INFO", format=f"{sys.argv[2]}: %(message)s")
    if sys.argv[3:]:
        die_at(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    settings = from_environment(sys.argv[1], int(sys.argv[2]), os.environ)
    worker = build_worker(settings, framework=Counting())
    worker.take_signals()
    os._exit(worker.run())
