"""The dry run creates variables and changes nothing else."""

from __future__ import annotations

import numpy as np
from model_files import LOSS, REST, SUBCLASS, rows
from plain_loop import batches
from zoo_folder import ZooFolder


def test_the_dry_run_does_not_change_statistics(zoo: ZooFolder) -> None:
    """A forward pass would change the statistics of a layer called with training=True."""
    zoo.write("mine.py", REST + LOSS + """
class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.norm = tf.keras.layers.BatchNormalization()
        self.dense = tf.keras.layers.Dense(1)
    def call(self, inputs):
        return self.dense(self.norm(inputs, training=True))
""")  # fmt: skip
    model_file = zoo.load("mine")
    model_file.build(batches(model_file, rows())[0])
    values = {v.path.rpartition("/")[2]: v.numpy() for v in model_file.model.variables}
    np.testing.assert_array_equal(values["moving_mean"], 0.0)
    np.testing.assert_array_equal(values["moving_variance"], 1.0)


def test_variables_have_the_same_unique_paths_each_time(zoo: ZooFolder) -> None:
    zoo.write("mine.py", SUBCLASS.format(signature="inputs", body="self.dense(inputs)") + REST
              + LOSS + "\nmodel = Net()\n")  # fmt: skip
    paths = []
    for _ in range(2):
        model_file = zoo.load("mine", seed=7)
        model_file.build(batches(model_file, rows())[0])
        paths.append({v.path: v.numpy().tolist() for v in model_file.model.variables})
    assert paths[0] == paths[1]
    assert len(paths[0]) == 2
