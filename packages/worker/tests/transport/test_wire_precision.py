"""Parameters and gradients of 16 bits: rounded as others round, whole where they must be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from conftest import Start, training
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_models import StubModelFile, batch_of, mean_square, regression

from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2
from edl_testing.fake_master import FakeMaster
from edl_worker.codec.jobs import encode_precision
from edl_worker.core.exchange import TableRows
from edl_worker.core.job import WirePrecision
from edl_worker.core.row_engine import RowRequest
from edl_worker.engines.tensorflow.quantization import dequantize, quantize
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.engines.tensorflow.training.gradient_step import GradientStep
from edl_worker.engines.tensorflow.training.wire_values import WireValues
from edl_worker.training.row_buffer import RowReceiveBuffer

HALVES = {WirePrecision.FLOAT16: np.float16, WirePrecision.BFLOAT16: ml_dtypes.bfloat16}

both = pytest.mark.parametrize("precision", list(HALVES), ids=["float16", "bfloat16"])
some_floats = arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32))


@both
@given(values=some_floats)
def test_numbers_are_rounded_as_numpy_rounds(precision: WirePrecision, values: Any) -> None:
    (bits,), fit = quantize([tf.constant(values)], precision)
    with np.errstate(over="ignore"):
        expected = values.astype(HALVES[precision])
    found = bits.numpy().view(HALVES[precision])
    is_nan = np.isnan(values)
    np.testing.assert_array_equal(found[~is_nan], expected[~is_nan])
    assert np.isnan(found[is_nan].astype(np.float32)).all()
    assert bool(fit) == bool(np.isfinite(expected.astype(np.float32)).all())
    back = dequantize(bits, precision).numpy()
    np.testing.assert_array_equal(back, found.astype(np.float32))


def test_other_numbers_are_left_alone() -> None:
    double = tf.constant([1 / 3], tf.float64)
    found, fit = quantize([double], WirePrecision.FLOAT16)
    assert found == [double]
    assert bool(fit)


def trainers(model: keras.Model, precision: Any) -> tuple[GradientStep, GradientStep]:
    """One whose gradients travel whole, and one with 16 bits."""
    arena = Arena(model)
    file: Any = StubModelFile(model, mean_square)
    wires = WireValues(arena), WireValues(arena, precision)
    whole, half = (GradientStep(file, wire) for wire in wires)
    return whole, half


def mixed_model() -> keras.Model:
    """Return a model with variables of all four groups."""
    inputs = keras.Input((3,))
    outputs = keras.layers.BatchNormalization()(keras.layers.Dense(5)(inputs))
    outputs = keras.layers.Dense(1)(outputs)
    double = keras.layers.Dense(1, dtype="float64", use_bias=False)(inputs)
    return keras.Model(inputs, keras.layers.Add(dtype="float64")([outputs, double]))


@both
def test_a_gradient_is_rounded_and_nothing_else(precision: Any) -> None:
    whole, half = trainers(mixed_model(), precision)
    expected, found = whole.compute(batch_of()), half.compute(batch_of())
    assert (expected.precision, found.precision) == (WirePrecision.FLOAT32, precision)
    single = np.frombuffer(expected.gradient[0], np.float32).astype(HALVES[precision])
    assert bytes(found.gradient[0]) == single.tobytes()
    assert bytes(found.gradient[1]) == bytes(expected.gradient[1]), "float64"
    assert [bytes(part) for part in found.state_delta] == [
        bytes(part) for part in expected.state_delta
    ]
    assert found.loss == expected.loss


@both
def test_values_of_16_bits_become_those_of_the_model(precision: Any) -> None:
    model = mixed_model()
    arena = Arena(model)
    wire = WireValues(arena, precision)
    random = np.random.default_rng(3)
    travels, expected = [], []
    for group in arena.groups:
        values = random.normal(size=sum(group.sizes)).astype(group.dtype)
        if group.trainable and group.dtype == "float32":
            values = values.astype(HALVES[precision])
        travels.append(values.view(np.uint8))
        expected.append(values.astype(group.dtype))
    payload = np.concatenate(travels)
    assert payload.nbytes == arena.nbytes_as(precision)
    wire.assign(payload, precision)
    for group, values in zip(arena.groups, expected, strict=True):
        found = np.concatenate([w.variable.numpy().ravel() for w in group.weights])
        np.testing.assert_array_equal(found, values)
    whole = arena.pack()
    wire.assign(np.zeros_like(whole))  # as frozen versions come
    assert not arena.pack().any()


def test_a_gradient_beyond_float16_travels_whole(caplog: pytest.LogCaptureFixture) -> None:
    whole, half = trainers(regression(), WirePrecision.FLOAT16)
    batch = batch_of()
    steep = type(batch)(batch.features * 1e4, batch.labels * 1e4, batch.size)
    expected = whole.compute(steep)
    assert np.abs(np.frombuffer(expected.gradient[0], np.float32)).max() > 65_520
    for _ in range(2):
        found = half.compute(steep)
        assert found.precision == WirePrecision.FLOAT32
        assert bytes(found.gradient[0]) == bytes(expected.gradient[0])
    assert len([r for r in caplog.records if "float16" in r.message]) == 1, "told once"
    assert half.compute(batch).precision == WirePrecision.FLOAT16, "the next one is as usual"
    _, wide = trainers(regression(), WirePrecision.BFLOAT16)
    assert wide.compute(steep).precision == WirePrecision.BFLOAT16


def test_a_gradient_that_is_not_finite_stays_so() -> None:
    _, half = trainers(regression(), WirePrecision.FLOAT16)
    batch = batch_of()
    step = half.compute(type(batch)(batch.features / 0.0, batch.labels, batch.size))
    assert step.precision == WirePrecision.FLOAT32
    assert not np.isfinite(np.frombuffer(step.gradient[0], np.float32)).all()


@both
def test_rows_of_16_bits_are_looked_up_as_float32(precision: Any) -> None:
    inbox = RowReceiveBuffer()
    wanted = RowRequest((TableRows(0, 2), TableRows(1, 1)), np.array([4, 9, 1]), 20)
    rows = np.array([0.5, 1, 2, 3, 5], HALVES[precision])
    inbox.open(wanted)(rows.nbytes)[:] = memoryview(rows.view(np.uint8))
    inbox.on_received(wanted, precision)
    found = inbox.rows(wanted)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [0.5, 1, 2, 3, 5])


# --- a whole worker ----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("local_steps", [1, 3])
def test_a_worker_trains_with_numbers_of_16_bits(
    precision: WirePrecision,
    local_steps: int,
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Callable[..., FakeMaster],
    start_worker: Start,
) -> None:
    on_wire = encode_precision(precision)
    job.training.wire_precision = on_wire
    job.training.local_steps = local_steps
    master = start_master(job, [[training(points, 0, 44, number=0)]])
    assert start_worker(master).wait() == 0
    pushes = [header for header, outcome in master.received.pushes]
    assert sum(header.claim.minibatches or 1 for header in pushes) == 6
    for header in pushes:
        assert header.gradient.precision == on_wire
        assert not header.HasField("next") or header.next.precision == on_wire
        assert header.gradient.nbytes == master.trainable_nbytes // 2
    assert {pull.precision for pull in master.received.pulls if not pull.frozen} == {on_wire}
    assert all(outcome == parameters_pb2.APPLIED for _, outcome in master.received.pushes)
    assert not master.received.failed


def test_what_is_evaluated_is_whole(
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Callable[..., FakeMaster],
    start_worker: Start,
) -> None:
    job.training.wire_precision = job_pb2.FLOAT16
    lease = training(points, 0, 20, number=0)
    evaluation = training(points, 20, 40, number=0)
    evaluation.task.type, evaluation.frozen = task_pb2.EVALUATION, "stage-1"
    master = start_master(job, [[lease], [evaluation]])
    assert start_worker(master).wait() == 0
    frozen = [pull.precision for pull in master.received.pulls if pull.frozen]
    assert frozen
    assert set(frozen) == {job_pb2.FLOAT32}
