"""What every engine does: the suite that each passes, on a job that trains on the points.

The model's own optimizer is SGD without momentum, with a rate of 0.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import recordio
from edl_proto.v1 import job_pb2
from edl_worker.codec.jobs import decode_job
from edl_worker.core.batch import Batch
from edl_worker.core.job import JobDescription
from edl_worker.core.replica_engine import ReplicaEngine
from edl_worker.core.step_engine import Framework, ModelEngine, StepEngine
from edl_worker.training.trainer import LocalTrainer
from elasticdl.python.common.constants import Mode

RATE = 0.1
SIZE = 8
Array = np.ndarray[Any, Any]


def batches_of(
    model: ModelEngine, points: Path, mode: Mode = Mode.TRAINING, *, seed: int = 3, skip: int = 0
) -> list[Batch]:
    def blocks() -> Iterator[list[bytes]]:
        records = list(recordio.open_source(str(points)).read(0, 28))
        for start, stop in pairwise([0, 5, 20, 28]):
            yield records[start:stop]

    read = model.source.batches(blocks, mode=mode, minibatch_size=SIZE, seed=seed, skip=skip)
    return list(read)


def flat(parts: Any) -> list[Array]:
    return [np.frombuffer(part, np.float32) for part in parts]


def values_of(steps: StepEngine) -> list[Array]:
    return steps.layout.views(steps.pack())


class EngineSuite:
    """Subclasses say which framework it is."""

    framework: Framework

    @pytest.fixture
    def description(self, job: job_pb2.JobSpec) -> JobDescription:
        return decode_job(job)

    @pytest.fixture
    def model(self, description: JobDescription) -> ModelEngine:
        self.framework.prepare()
        return self.framework.load(description, {"job": "points", "worker_id": 0, "master": ""})

    @pytest.fixture
    def steps(self, model: ModelEngine) -> StepEngine:
        assert model.steps is not None
        return model.steps

    @pytest.fixture
    def replicas(self, description: JobDescription) -> list[ReplicaEngine]:
        """Two that train in step."""
        self.framework.prepare()
        replicated = replace(description, training=replace(description.training, replicated=True))
        context = {"job": "points", "worker_id": 0, "master": ""}
        loaded = [self.framework.load(replicated, context).steps for _ in range(2)]
        return [cast(ReplicaEngine, steps) for steps in loaded]

    # --- minibatches -------------------------------------------------------------------------

    def test_the_sample_is_a_whole_minibatch(self, model: ModelEngine) -> None:
        assert model.sample.size == SIZE
        assert len(np.asarray(model.infer(model.sample))) == SIZE

    def test_minibatches_are_the_same_for_the_same_seed(
        self, model: ModelEngine, points: Path
    ) -> None:
        first, again = batches_of(model, points), batches_of(model, points)
        assert [batch.size for batch in first] == [8, 8, 8, 4]
        other = batches_of(model, points, seed=4)
        labels = [
            [np.asarray(batch.labels).tolist() for batch in each] for each in (first, again, other)
        ]
        assert labels[0] == labels[1] != labels[2]

    def test_skipped_minibatches_do_not_change_the_others(
        self, model: ModelEngine, points: Path
    ) -> None:
        whole, rest = batches_of(model, points), batches_of(model, points, skip=2)
        assert [np.asarray(batch.labels).tolist() for batch in rest] == [
            np.asarray(batch.labels).tolist() for batch in whole[2:]
        ]

    def test_a_prediction_keeps_the_order_and_has_no_labels(
        self, model: ModelEngine, points: Path
    ) -> None:
        predicted = batches_of(model, points, Mode.PREDICTION)
        evaluated = batches_of(model, points, Mode.EVALUATION)
        assert all(batch.labels is None for batch in predicted)
        for one, other in zip(predicted, evaluated, strict=True):
            np.testing.assert_array_equal(model.infer(one), model.infer(other))

    # --- values --------------------------------------------------------------------------------

    def test_what_was_read_can_be_assigned(self, steps: StepEngine) -> None:
        before = steps.pack()
        assert before.nbytes == steps.layout.nbytes
        steps.assign(np.zeros_like(before))
        assert not steps.pack().any()
        steps.assign(before)
        np.testing.assert_array_equal(steps.pack(), before)

    def test_values_that_were_read_stay_as_they_are(self, steps: StepEngine) -> None:
        read = steps.pack()
        noted = read.copy()
        steps.assign(np.zeros(steps.layout.nbytes, np.uint8))
        np.testing.assert_array_equal(read, noted)

    def test_outputs_are_those_of_the_present_values(
        self, model: ModelEngine, steps: StepEngine
    ) -> None:
        before = np.asarray(model.infer(model.sample))
        steps.assign(np.zeros(steps.layout.nbytes, np.uint8))
        after = np.asarray(model.infer(model.sample))
        assert before.shape == after.shape
        assert np.ptp(after, axis=0).max() == 0.0 < np.ptp(before, axis=0).max()

    # --- steps ---------------------------------------------------------------------------------

    def test_a_gradient_changes_nothing_and_can_be_repeated(
        self, model: ModelEngine, steps: StepEngine
    ) -> None:
        before = steps.pack()
        first, again = steps.gradient(model.sample), steps.gradient(model.sample)
        np.testing.assert_array_equal(steps.pack(), before)
        assert first.loss == again.loss > 0.0
        assert [bytes(part) for part in (*first.gradient, *first.state_delta)] == [
            bytes(part) for part in (*again.gradient, *again.state_delta)
        ]
        assert [part.nbytes for part in (*first.gradient, *first.state_delta)] == [
            group.nbytes for group in steps.layout.groups
        ]

    def test_a_gradient_is_the_slope_of_the_loss(
        self, model: ModelEngine, steps: StepEngine
    ) -> None:
        gradient = np.concatenate(flat(steps.gradient(model.sample).gradient))
        values = steps.pack().view(np.float32)
        steepest = int(np.abs(gradient).argmax())
        losses = []
        for change in (-0.01, 0.01):
            moved = values.copy()
            moved[steepest] += change
            steps.assign(moved.view(np.uint8))
            losses.append(steps.gradient(model.sample).loss)
        slope = (losses[1] - losses[0]) / 0.02
        assert slope == pytest.approx(gradient[steepest], rel=0.02)

    def test_a_step_is_a_gradient_that_the_optimizer_applies(
        self, model: ModelEngine, steps: StepEngine
    ) -> None:
        before, computed = values_of(steps), steps.gradient(model.sample)
        steps.place_optimizer(0, None)
        assert steps.step(model.sample) == pytest.approx(computed.loss, rel=1e-5)
        changes = [-RATE * part for part in flat(computed.gradient)] + flat(computed.state_delta)
        for then, change, now in zip(before, changes, values_of(steps), strict=True):
            np.testing.assert_allclose(now, then + change, rtol=1e-4, atol=1e-6)

    def test_callbacks_may_set_another_rate_and_take_it_back(
        self, model: ModelEngine, steps: StepEngine
    ) -> None:
        before = values_of(steps)[0]
        steps.place_optimizer(0, 0.0)
        steps.step(model.sample)
        np.testing.assert_array_equal(values_of(steps)[0], before)
        steps.place_optimizer(1, None)
        steps.step(model.sample)
        assert not np.array_equal(values_of(steps)[0], before)

    def test_a_difference_is_sent_as_a_gradient_is(
        self, model: ModelEngine, steps: StepEngine
    ) -> None:
        trainer = LocalTrainer(steps)
        trainer.begin_push(0)
        before = values_of(steps)
        losses = [trainer.add(model.sample) for _ in range(2)]
        pushed = trainer.take()
        assert pushed.loss == pytest.approx(sum(losses) / 2)
        for then, now, part in zip(
            before, values_of(steps), flat((*pushed.gradient, *pushed.state_delta)), strict=True
        ):
            np.testing.assert_array_equal(part, now - then)

    def test_traces_serve_minibatches_of_all_sizes(
        self, model: ModelEngine, steps: StepEngine, points: Path
    ) -> None:
        for local in (False, True):
            steps.trace(model.sample, local=local)
        sizes = {batch.size: steps.gradient(batch).loss for batch in batches_of(model, points)}
        assert set(sizes) == {8, 4}

    # --- replicas ------------------------------------------------------------------------------

    def test_a_replica_alone_steps_as_the_sum_of_several_does(
        self, model: ModelEngine, replicas: list[ReplicaEngine]
    ) -> None:
        alone, other = replicas
        before, found = alone.pack(), other.gradient(model.sample)
        np.testing.assert_array_equal(other.pack(), before)
        parts = flat((*found.gradient, *found.state_delta))
        assert [(part.dtype, part.size) for part in parts] == [
            (np.dtype(part.dtype), part.count) for part in other.replica_parts
        ]
        assert alone.step(model.sample) == pytest.approx(found.loss, rel=1e-5)
        other.apply(parts[: len(found.gradient)], parts[len(found.gradient) :])
        for mine, theirs, then in zip(
            values_of(alone), values_of(other), alone.layout.views(before), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
            assert not np.array_equal(mine, then)

    def test_a_replica_continues_from_the_payload_of_another(
        self, model: ModelEngine, replicas: list[ReplicaEngine]
    ) -> None:
        first, newcomer = replicas
        first.step(model.sample)
        payload = first.pack()
        assert payload.nbytes == first.layout.nbytes
        newcomer.assign(payload)
        for each in replicas:
            each.set_learning_rate(0.01)
            each.step(model.sample)
            each.finish()
        np.testing.assert_array_equal(first.pack(), newcomer.pack())
        assert not np.array_equal(first.pack(), payload)

    def test_the_rate_of_a_replica_can_be_set_and_taken_back(
        self, model: ModelEngine, replicas: list[ReplicaEngine]
    ) -> None:
        steps, other = replicas
        trained = values_of(steps)[0]
        steps.set_learning_rate(0.0)
        steps.step(model.sample)
        np.testing.assert_array_equal(values_of(steps)[0], trained)
        steps.assign(other.pack())
        steps.set_learning_rate(None)
        for each in replicas:
            each.step(model.sample)
        np.testing.assert_array_equal(steps.pack(), other.pack())

    def test_a_loss_of_a_replica_that_is_not_finite_changes_nothing(
        self, model: ModelEngine, replicas: list[ReplicaEngine]
    ) -> None:
        steps, before = replicas[0], replicas[0].pack()
        values = before.copy()
        for view in steps.layout.views(values)[:1]:
            view[:] = np.nan
        steps.assign(values)
        assert not np.isfinite(steps.step(model.sample))
        assert not steps.gradient(model.sample).is_finite
        np.testing.assert_array_equal(steps.pack(), values)

    # --- other tasks ---------------------------------------------------------------------------

    def test_the_metrics_of_parts_add_up_to_those_of_the_whole(
        self, model: ModelEngine, points: Path
    ) -> None:
        read = batches_of(model, points, Mode.EVALUATION)
        whole, *parts = (model.new_metrics() for _ in range(3))
        for index, batch in enumerate(read):
            whole.add(batch, model.infer)
            parts[index % 2].add(batch, model.infer)
        states = [dict(part.states()) for part in parts]
        assert all(states)
        total = model.new_metrics()
        total.load(
            [
                (name, [a + b for a, b in zip(states[0][name], states[1][name], strict=True)])
                for name in states[0]
            ]
        )
        expected = whole.result()
        assert set(expected) == set(model.summarize().metrics)
        for name, value in total.result().items():
            assert float(value) == pytest.approx(float(expected[name]), rel=1e-5)

    def test_the_master_gets_layout_and_optimizer(self, steps: StepEngine) -> None:
        description = steps.describe()
        assert description.variables == tuple(steps.layout.describe())
        assert json.loads(description.optimizer_json)["class_name"] == "SGD"
        assert description.reduction == "mean"

    def test_the_values_are_exported_by_name_and_so_is_each_form(
        self, steps: StepEngine, tmp_path: Path
    ) -> None:
        values, forms = steps.named_values(), steps.export_forms()
        numbers = sum(weight.size for weight in steps.layout.weights)
        assert sum(value.size for value in values.values()) == numbers
        assert forms
        for form in forms:
            form.check(True)
            form.save(tmp_path / form.file)
            assert (tmp_path / form.file).exists()

    def test_definitions_are_checked_without_data(
        self, model: ModelEngine, description: JobDescription
    ) -> None:
        assert self.framework.check(description).name == model.summarize().name
