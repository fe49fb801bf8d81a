"""A row that no gradient has reached is the same in the master and in a worker's trained model."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.core.parameters.tables.joint_tables import JointTables
from edl_master.core.parameters.tables.table import Table
from edl_worker.engines.tensorflow.embedding import initial_rows

DIM = 8
IDS = np.array([0, 1, 2, -1, 7, 1 << 40, (1 << 63) - 1, *range(100, 300)], np.int64)
DISTRIBUTIONS = {
    Distribution.CONSTANT: initial_rows.CONSTANT,
    Distribution.UNIFORM: initial_rows.UNIFORM,
    Distribution.NORMAL: initial_rows.NORMAL,
    Distribution.TRUNCATED_NORMAL: initial_rows.TRUNCATED_NORMAL,
}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_master_and_worker_begin_with_the_same_rows(distribution: Distribution) -> None:
    seed, center, spread = 12345, 0.25, 2.0
    table = Table(TableSpec("t", DIM, Initial(distribution, center, spread), seed), ())
    kept = np.empty((IDS.size, DIM), np.float32)
    JointTables([table]).read(IDS, np.array([0, IDS.size]), kept)
    begin = initial_rows.RowInitializer(DISTRIBUTIONS[distribution], center, spread)
    made = initial_rows.initial_rows(begin, tf.constant(IDS), DIM, tf.constant(seed, tf.int64))
    # The master's inverse error function is of single precision.
    np.testing.assert_allclose(made.numpy(), kept, rtol=0, atol=1e-5)
