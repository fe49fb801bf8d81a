"""The records of the counting models, each of which takes its time while a test holds the job."""

import os
import time

import tensorflow as tf
from counting import dataset_fn as counted

from elasticdl.python.common.constants import Mode

RECORD_S = float(os.environ.get("EDL_TEST_RECORD_S", "0.1"))


def take_time(number):
    if os.path.exists(os.environ["EDL_TEST_HELD"]):
        time.sleep(RECORD_S)
    return number


def dataset_fn(dataset, mode):
    def slowly(features, number):
        number = tf.numpy_function(take_time, [number], tf.int64)
        return features, tf.ensure_shape(number, [])

    def predict_slowly(features):
        return slowly(features, features["number"])[0]

    dataset = counted(dataset, mode)
    if mode == Mode.PREDICTION:
        return dataset.map(predict_slowly)
    return dataset.map(slowly) if mode == Mode.TRAINING else dataset
