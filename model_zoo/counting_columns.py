"""The counting model on rows of CSV with the columns ``number`` and ``twin``, in any order.

    edl train --model-zoo model_zoo --model-def counting_columns --params size=1000 ...

Both columns have numbers from 0 to size - 1, so that only the weights show if they are swapped.
"""

import tensorflow as tf

from . import counting

loss = counting.loss
optimizer = counting.optimizer
eval_metrics_fn = counting.eval_metrics_fn


def model(size):
    return counting.model(size)


def dataset_fn(dataset, mode):
    def parse(row):
        number, _ = tf.io.decode_csv(row, [tf.constant([], tf.int64)] * 2)
        return {"number": number}, number

    return dataset.map(parse)
