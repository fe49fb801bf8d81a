"""The records of the counting models, in a job for which a test makes trouble.

``EDL_TEST_TROUBLE`` names a folder. While there is a file ``stuck`` in it, no worker goes on. While
there is a file ``records``, to which others add an octet for each of their records, worker 0 waits
for ``BEHIND`` of them before each of its own: its gradients are that stale. Records of
``UNREADABLE`` always fail.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

import tensorflow as tf
from counting import dataset_fn as counted

from elasticdl.python.common.constants import Mode

BEHIND = 50
UNREADABLE = range(200, 220)
RECORD_S = 0.02
TROUBLE = Path(os.environ["EDL_TEST_TROUBLE"])
IS_SLOW = "--worker-id 0 " in f"{' '.join(sys.argv)} "


def wait_while_stuck():
    while (TROUBLE / "stuck").exists():
        time.sleep(0.05)


def fall_behind():
    with contextlib.suppress(FileNotFoundError):
        until = (TROUBLE / "records").stat().st_size + BEHIND
        while (TROUBLE / "records").stat().st_size < until:
            time.sleep(0.01)


def note_record():
    time.sleep(RECORD_S)
    with contextlib.suppress(FileNotFoundError):
        file = os.open(TROUBLE / "records", os.O_WRONLY | os.O_APPEND)
        os.write(file, b".")
        os.close(file)


def get_into_trouble(number):
    wait_while_stuck()
    if number in UNREADABLE:
        raise ValueError(f"record {number} cannot be read")
    if IS_SLOW:
        fall_behind()
    else:
        note_record()
    return number


def dataset_fn(dataset, mode):
    def process(features, number):
        number = tf.numpy_function(get_into_trouble, [number], tf.int64)
        return features, tf.ensure_shape(number, [])

    dataset = counted(dataset, mode)
    return dataset.map(process) if mode == Mode.TRAINING else dataset


wait_while_stuck()  # a worker that starts
