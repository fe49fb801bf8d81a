"""EarlyStopping that wants the weights of its best epoch back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from callback_callers import BATCH, caller
from model_files import LOSS, MODEL, REST
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError
from edl_worker.core.tasks import EpochLogs
from edl_worker.engines.tensorflow.loading import check_best_values

LAST = """
class Last(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        self.seen = [float(x) for w in self.model.get_weights() for x in np.ravel(w)]

callbacks = [STOP, Last()]
"""


@pytest.mark.parametrize("options", ["patience=2", "patience=9", "patience=2, start_from_epoch=3"])
def test_the_weights_of_keras_best_epoch_are_kept_and_restored(
    zoo: ZooFolder, options: str
) -> None:
    """The stores keep what is best when the call says so; each call may be another worker's."""
    losses = [1.0, 0.5, 0.6, 0.4, 0.45, 0.5, 0.55]
    stop = f"tf.keras.callbacks.EarlyStopping(restore_best_weights=True, {options})"
    text = MODEL + REST + LOSS + LAST.replace("STOP", stop)
    zoo.write("mine.py", text)
    alone = zoo.load("mine")
    alone.build(BATCH)
    alone.resolve_callbacks(validates=True)
    keras_own, _ = alone.callbacks
    model: Any = alone.model
    keras_own.set_model(model)
    keras_own.on_train_begin({})
    callers = [caller(zoo, text) for _ in range(2)]
    for each in callers:
        each._epochs = len(losses)
    state, kept = callers[0].call(0, EpochLogs()).state, None
    for ended, loss in enumerate(losses, 1):
        model.set_weights([np.full_like(w, ended) for w in model.get_weights()])
        model.stop_training = False
        keras_own.on_epoch_end(ended - 1, {"val_loss": loss})
        result = callers[ended % 2].call(ended, EpochLogs(state, {"val_loss": loss}))
        state = result.state
        kept = ended if result.keep_best else kept
        over = model.stop_training or ended == len(losses)
        assert bool(result.stopped_by) == model.stop_training
        assert result.restore_best == over
        if over:
            break
    keras_own.on_train_end({})
    assert {float(w.flat[0]) for w in model.get_weights()} == {kept}
    last = callers[0]
    assert not hasattr(last._callbacks[1], "seen")
    last._model.set_weights([np.full_like(w, kept) for w in model.get_weights()])
    again = last.call(ended + 1, EpochLogs(state, {"val_loss": loss}, train_end=True))
    assert (again.restore_best, again.keep_best, again.stopped_by) == (False, False, "")
    assert last._callbacks[1].seen == [kept] * 3


def test_an_average_of_weights_has_no_best_epoch(zoo: ZooFolder) -> None:
    stop = "tf.keras.callbacks.EarlyStopping(restore_best_weights=True)"
    zoo.write("mine.py", MODEL + REST + LOSS + f"callbacks = [{stop}]\n")
    file = zoo.load("mine")
    file.build(BATCH)
    file.resolve_callbacks(validates=True)
    check_best_values(file, None)
    file.optimizer.use_ema = True
    with pytest.raises(EdlError, match="use_ema"):
        check_best_values(file, None)
