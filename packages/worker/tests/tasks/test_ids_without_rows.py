"""An id that an embedding has no row for is named with the embedding, and with what it needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from example_data import example
from model_files import LOSS, REST
from trial_jobs import refusal, write_rows
from zoo_folder import ZooFolder

import recordio
from edl_proto.errors import ErrorCode

EMBEDDING = """
inputs = tf.keras.Input((2,), name="x")
rows = tf.keras.layers.Embedding(5, 4, name="words")(inputs * 10)
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(rows)))
"""


def test_ids_without_a_row_in_an_embedding(zoo: ZooFolder, tmp_path: Path) -> None:
    error = refusal(zoo, write_rows(tmp_path / "data.recordio"), REST + LOSS + EMBEDDING)
    assert error.code == ErrorCode.SHAPE_MISMATCH, "another attempt cannot help"
    assert "words" in error.what
    assert "has 5 rows, for the ids 0 to 4, and got the id" in error.what
    ids = tmp_path / "ids.recordio"
    with recordio.Writer(str(ids)) as writer:
        for n in range(16):
            writer.write(example(x=np.array([n % 8, 3], np.float32), y=np.zeros(1, np.float32)))
    error = refusal(zoo, str(ids), REST + LOSS + EMBEDDING.replace("inputs * 10", "inputs"))
    assert "got the id" in error.what
    assert "the greatest id of this minibatch is 7" in error.what
    assert "input_dim=8 or more" in error.remedy
