"""DeepFM on census rows that tools/census.py generates.

edl train --model-zoo model_zoo --model-def ctr.census_deepfm --minibatch-size 512 ...
"""

import keras

from . import inputs, models

dataset_fn = inputs.census
loss = models.loss
eval_metrics_fn = models.eval_metrics_fn


def model(dim=16, hidden=(256, 128)):
    return models.deepfm(len(inputs.CENSUS_NUMBERS), len(inputs.CENSUS_FIELDS), dim, hidden)


def optimizer(lr=0.01):
    return keras.optimizers.Adagrad(lr)
