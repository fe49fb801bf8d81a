"""An engine without a framework: a linear model in numpy, of examples with ``x`` and ``label``.

Its state, which training changes without a gradient, is the moving mean of the inputs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import recordio.example
from edl_worker.core.batch import Batch, Blocks
from edl_worker.core.job import JobDescription, JobType, WirePrecision
from edl_worker.core.layer_state import LayerState
from edl_worker.core.layout import PayloadLayout
from edl_worker.core.model_description import ModelDescription, VariableDescription
from edl_worker.core.replicas import Part
from edl_worker.core.row_engine import RowEngine, RowRequest
from edl_worker.core.step_engine import (
    ExportForm,
    ModelSummary,
    OptimizerState,
    Profiler,
    StepResult,
)
from edl_worker.core.tasks import CallbackResult, EpochLogs
from edl_worker.model_file.sample import first_batch
from edl_worker.trained_model.directory import open_directory
from elasticdl.python.common.constants import Mode

Array = np.ndarray[Any, Any]
RATE = 0.1
_SUMMARY = ModelSummary("linear", "line", 5, None, ("loss",), loss_place="linear_engine.py, loss")


@dataclass(slots=True)
class Line:
    kernel: Array = field(default_factory=lambda: np.linspace(-1, 1, 4, dtype=np.float32))
    bias: Array = field(default_factory=lambda: np.zeros(1, np.float32))
    mean: Array = field(default_factory=lambda: np.zeros(4, np.float32))

    def __call__(self, features: Array) -> Array:
        return (features @ self.kernel + self.bias)[:, np.newaxis]


class LinearSource:
    reads_records = False

    def blocks(self, uri: str, start: int, stop: int, read: Blocks) -> Blocks:
        return read

    def batches(
        self,
        blocks: Blocks,
        *,
        mode: Mode,
        minibatch_size: int,
        seed: int,
        skip: int = 0,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        examples = [recordio.example.decode(record) for block in blocks() for record in block]
        if mode is Mode.TRAINING:
            np.random.default_rng(seed).shuffle(examples)  # type: ignore[arg-type]  # a list
        for start in range(skip * minibatch_size, len(examples), minibatch_size):
            part = examples[start : start + minibatch_size]
            x = np.stack([np.asarray(one["x"], np.float32) for one in part])
            labels = np.array([one["label"][0] for one in part], np.float32)
            yield Batch(x, None if mode is Mode.PREDICTION else labels, len(part))


class LinearMetrics:
    def __init__(self) -> None:
        self._loss = np.zeros(2)  # total and weight

    def add(self, batch: Batch, infer: Callable[[Batch], Any]) -> None:
        errors = infer(batch)[:, 0] - batch.labels
        self._loss += float(np.square(errors).sum()), batch.size

    def states(self) -> list[tuple[str, list[Array]]]:
        return [("loss", [self._loss])]

    def load(self, states: list[tuple[str, list[Array]]]) -> None:
        ((_, (self._loss,)),) = states

    def result(self) -> Mapping[str, float]:
        return {"loss": self._loss[0] / self._loss[1]}


class LinearSteps:
    precision = WirePrecision.FLOAT32
    tables: RowEngine | None = None

    def __init__(self, line: Line) -> None:
        self._line = line
        self._rate = RATE
        self.layout = PayloadLayout(
            [
                VariableDescription("kernel", (4,), "float32", True),
                VariableDescription("bias", (1,), "float32", True),
                VariableDescription("mean", (4,), "float32", False),
            ]
        )

    def describe(self) -> ModelDescription:
        sgd = {"class_name": "SGD", "config": {"learning_rate": RATE}}
        return ModelDescription(
            tuple(self.layout.describe()), reduction="mean", optimizer_json=json.dumps(sgd)
        )

    def trace(self, batch: Batch, *, local: bool) -> None:
        pass

    def gradient(
        self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None
    ) -> StepResult:
        errors = self._line(batch.features)[:, 0] - batch.labels
        flat = np.append(2 * errors @ batch.features / batch.size, 2 * errors.mean())
        delta = 0.5 * (batch.features.mean(0) - self._line.mean)
        gradient, _ = self.encode([flat.astype(np.float32)])
        state = memoryview(delta.astype(np.float32)).cast("B")
        return StepResult(gradient, (state,), float(np.square(errors).mean()))

    def step(self, batch: Batch) -> float:
        found = self.gradient(batch)
        if found.is_finite:
            gradient, delta = (
                np.frombuffer(part, np.float32) for part in (*found.gradient, *found.state_delta)
            )
            self.apply([gradient], [delta])
        return found.loss

    def apply(self, gradient: Sequence[Array], state_delta: Sequence[Array]) -> None:
        self._line.kernel = self._line.kernel - np.float32(self._rate) * gradient[0][:4]
        self._line.bias = self._line.bias - np.float32(self._rate) * gradient[0][4:]
        self._line.mean = self._line.mean + state_delta[0]

    def set_learning_rate(self, rate: float | None) -> None:
        self._rate = RATE if rate is None else rate

    def finish(self) -> None:
        pass

    @property
    def replica_parts(self) -> Sequence[Part]:
        return [Part("float32", 5), Part("float32", 4)]

    def pack(self) -> Array:
        flat = np.concatenate([self._line.kernel, self._line.bias, self._line.mean])
        return flat.view(np.uint8)

    def place_optimizer(self, version: int, learning_rate: float | None) -> None:
        self.set_learning_rate(learning_rate)

    def encode(self, gradient: Sequence[Any]) -> tuple[tuple[memoryview, ...], WirePrecision]:
        return tuple(memoryview(part).cast("B") for part in gradient), WirePrecision.FLOAT32

    def assign(self, payload: Array, precision: WirePrecision = WirePrecision.FLOAT32) -> None:
        trained, mean = (part.copy() for part in self.layout.views(payload, precision))
        self._line.kernel, self._line.bias, self._line.mean = trained[:4], trained[4:], mean

    def layer_states(self) -> Sequence[LayerState]:
        return ()

    def call_callbacks(self, ended: int, call: EpochLogs) -> CallbackResult:
        return CallbackResult(state=b"")

    def named_values(self) -> Mapping[str, Array]:
        return {name: getattr(self._line, name) for name in ("kernel", "bias", "mean")}

    exported_slots: Sequence[str] | None = None

    def export_forms(self, optimizer: OptimizerState | None = None) -> Sequence[ExportForm]:
        line = self._line
        form = ExportForm(
            "line.json",
            lambda path: path.write_text(json.dumps(line.kernel.tolist())),
            lambda thorough: None,
            "The trained model has no line.json",
        )
        return [form]


@dataclass(slots=True)
class LinearModel:
    zoo: Path
    sample: Batch
    line: Line
    steps: LinearSteps | None = None
    source: LinearSource = field(default_factory=LinearSource)
    versions: Mapping[str, str] = field(default_factory=lambda: {"numpy": np.__version__})
    has_call: bool = True

    def summarize(self) -> ModelSummary:
        return _SUMMARY

    def infer(self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None) -> Array:
        return self.line(batch.features)

    def process_outputs(self, outputs: Any, worker_id: int) -> None:
        pass

    def new_metrics(self) -> LinearMetrics:
        return LinearMetrics()

    def preserve_state(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Linear:
    """The ``Framework`` of linear models."""

    def prepare(self) -> None:
        pass

    def load(self, job: JobDescription, context: Mapping[str, Any]) -> LinearModel:
        trains = job.type is JobType.TRAIN
        sample = first_batch(LinearSource(), job, Mode.TRAINING, job.minibatch_size)
        line = Line()
        if not trains:
            values = open_directory(job.trained_model).read_values().arrays
            line = Line(values["kernel"], values["bias"], values["mean"])
        zoo = Path(job.model.model_zoo or ".").resolve()
        return LinearModel(zoo, sample, line, LinearSteps(line) if trains else None)

    def search_space(self, job: JobDescription) -> list[dict[str, Any]]:
        return []

    def check(self, job: JobDescription) -> ModelSummary:
        return _SUMMARY

    def profiler(self, first: int, last: int, send: Callable[[bytes], None]) -> Profiler:
        raise NotImplementedError


if __name__ == "__main__":  # a worker: linear_engine.py HOST:PORT
    import sys

    from edl_worker.app import build_worker
    from edl_worker.config import Settings

    code = build_worker(Settings(sys.argv[1], 0), framework=Linear()).run()
    assert not {"tensorflow", "keras"} & set(sys.modules)
    sys.exit(code)
