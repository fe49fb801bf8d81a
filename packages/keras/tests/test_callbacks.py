"""Which callbacks travel, which are called here, and which are refused."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from edl.plugins.errors import Problem
from edl_keras.callbacks import LocalCallbacks, sort_callbacks, write_callbacks
from edl_keras.source_code import SourceCode

Known = keras.callbacks


class Collect(Known.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.seen.append("begin")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append((epoch, logs["loss"]))


class Halve(Known.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.5


class Batches(Known.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


def test_callbacks_that_decide_travel_and_others_are_called_here() -> None:
    stop, rate, save = Known.EarlyStopping(), Halve(), Known.ModelCheckpoint("a.keras")
    log, collect = Known.CSVLogger("a.csv"), Collect()
    say = Known.LambdaCallback(on_epoch_end=lambda epoch, logs: None)
    board = Known.TensorBoard("curves")
    given = [stop, log, rate, collect, save, say, board, Known.TerminateOnNaN()]
    found = sort_callbacks(given, shares_files=True)
    assert found.in_job == [stop, rate, save]
    assert found.here == [log, collect, say]
    assert found.tensorboard_dir.endswith("/curves")
    assert sort_callbacks(None, shares_files=False).in_job == []
    assert sort_callbacks(stop, shares_files=False).in_job == [stop]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (Known.EarlyStopping, "which is not a Keras callback"),
        (Batches(), "Batches has on_train_batch_end"),
        (Known.LambdaCallback(on_train_batch_end=print), "has on_train_batch_end"),
        (Known.ModelCheckpoint("a.keras"), "writes files of the machine of a worker"),
    ],
)
def test_what_no_job_can_call_is_refused(given: Any, what: str) -> None:
    with pytest.raises(Problem, match=what) as caught:
        sort_callbacks([given], shares_files=False)
    assert caught.value.where == "fit(callbacks=...)"
    assert caught.value.remedy


def test_a_callback_travels_with_its_attributes() -> None:
    code = SourceCode()
    stop = Known.EarlyStopping(monitor="loss", patience=3, min_delta=0.25)
    write_callbacks(code, [stop, Known.LearningRateScheduler(lambda epoch: 0.5**epoch), Halve()])
    names: dict[str, Any] = {}
    exec(code.text, names)
    made, scheduler, _ = names["make_callbacks"]()
    assert vars(made) == vars(stop)
    assert scheduler.schedule(2) == 0.25
    odd: Any = Halve()
    odd.file = object()
    with pytest.raises(Problem, match="the attribute file of Halve is object"):
        write_callbacks(SourceCode(), [odd])


def test_callbacks_here_get_the_values_of_epochs() -> None:
    collect = Collect()
    callbacks = LocalCallbacks([collect], keras.Sequential(), 2)
    callbacks.begin()
    callbacks.end_epoch(0, {"loss": 1.0})
    callbacks.end({"loss": 1.0})
    assert collect.seen == ["begin", (0, 1.0)]
