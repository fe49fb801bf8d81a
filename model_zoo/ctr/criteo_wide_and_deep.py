"""Wide and deep on clicks that tools/clicks.py generates.

edl train --model-zoo model_zoo --model-def ctr.criteo_wide_and_deep --minibatch-size 512 ...
"""

import keras

from . import inputs, models

dataset_fn = inputs.criteo
loss = models.loss
eval_metrics_fn = models.eval_metrics_fn


def model(dim=16, hidden=(256, 128)):
    return models.wide_and_deep(inputs.CRITEO_NUMBERS, inputs.CRITEO_FIELDS, dim, hidden)


def optimizer(lr=0.01):
    return keras.optimizers.Adagrad(lr)
