"""Replicas of models with a training step of their own, compared with ``fit``."""

from __future__ import annotations

import numpy as np
import pytest
from replica_batches import BATCHES, SIZE, Y, batch_of, fit, reduce_steps
from zoo_folder import ZooFolder

from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.replica_steps import ReplicaSteps
from edl_worker.model_file.errors import ContractErrors

CUSTOM = """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.first = tf.keras.layers.Dense(2)
        self.second = tf.keras.layers.Dense(2)

    def compile(self, one, other, **more):
        super().compile(**more)
        self.one, self.other = one, other

    def call(self, x):
        return self.first(x) + self.second(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        parts = self.first.trainable_weights, self.second.trainable_weights
        for optimizer, part in zip((self.one, self.{second}), parts):
            optimizer.apply_gradients(zip(tape.gradient(loss, part), part))
        {more}
        return {{"loss": loss}}

def custom_model():
    net = Net()
    net.compile(tf.keras.optimizers.Adam(0.1), tf.keras.optimizers.SGD(0.1, momentum=0.9))
    return net

def dataset_fn(dataset, mode):
    return dataset
"""


def load_custom(zoo: ZooFolder, second: str = "other", more: str = "") -> ModelFile:
    zoo.write("mine.py", CUSTOM.format(second=second, more=more))
    file = zoo.load("mine.custom_model", seed=7, replicated=True)
    file.build(BATCHES[0])
    return file


def test_a_step_of_the_models_own_may_have_several_optimizers(zoo: ZooFolder) -> None:
    reference, alone, several, newcomer = (load_custom(zoo) for _ in range(4))
    fit(reference)
    steps, others, third = ReplicaSteps(alone), ReplicaSteps(several), ReplicaSteps(newcomer)
    for at, batch in enumerate(BATCHES):
        steps.step(batch)
        reduce_steps(
            others, [batch_of(at * SIZE, at * SIZE + 3), batch_of(at * SIZE + 3, at * SIZE + 8)]
        )
        if at == 2:
            third.assign(others.pack())
        elif at > 2:
            third.step(batch)
    for file in (alone, several, newcomer):
        for mine, keras_own in zip(
            file.model.get_weights(), reference.model.get_weights(), strict=True
        ):
            np.testing.assert_allclose(mine, keras_own, 1e-4, 1e-6)


def test_a_step_of_the_models_own_changes_nothing_if_its_loss_is_not_finite(
    zoo: ZooFolder,
) -> None:
    steps = ReplicaSteps(load_custom(zoo))
    steps.step(BATCHES[0])
    before = steps.pack()
    assert not np.isfinite(steps.step(batch_of(0, SIZE, y=np.full_like(Y, np.inf))))
    np.testing.assert_array_equal(steps.pack(), before)


def test_two_updates_of_a_variable_in_one_step_are_refused(zoo: ZooFolder) -> None:
    again = "self.one.apply_gradients(zip(tape.gradient(loss, parts[0]), parts[0]))"
    with pytest.raises(ContractErrors, match="twice for one minibatch"):
        load_custom(zoo, more=again)
