"""How the networks of tables train by default: the same recipe for small tables and large ones.

The optimizer of the models is AdamW, whose strong weight decay keeps a network simple that sees a
small table many times. Its rate falls to zero along half a cosine, so that the last epochs no longer
follow single rows: no rows have to be held back to find out when to stop.
"""

import math

import tensorflow as tf
from columns import Columns

_DECAY = 2.0


def choose_decay(schema, label, columns):
    """Return the weight decay of AdamW.

    It is 0 if there are embedding tables: their rows, each of a few records, would learn by heart
    what the decay keeps the other columns from learning.
    """
    uses_tables = bool(schema) and Columns(schema=schema, label=label, columns=columns).has_tables
    return 0.0 if uses_tables else _DECAY


class FallingRate(tf.keras.callbacks.Callback):
    """Lowers the learning rate from epoch to epoch, down to zero behind the last one.

    It counts epochs, since the number of updates depends on how many workers there are. It leaves an
    optimizer alone that has a schedule of its own.
    """

    def __init__(self):
        super().__init__()
        self.first = None

    def on_train_begin(self, logs=None):
        has_schedule = isinstance(self.model.optimizer.get_config()["learning_rate"], dict)
        self.first = None if has_schedule else float(self.model.optimizer.learning_rate)

    def on_epoch_begin(self, epoch, logs=None):
        if self.first is None:
            return
        share = epoch / self.params["epochs"]
        self.model.optimizer.learning_rate = self.first * (1 + math.cos(math.pi * share)) / 2


def callbacks():
    """Return the callbacks of the recipe."""
    return [FallingRate()]
