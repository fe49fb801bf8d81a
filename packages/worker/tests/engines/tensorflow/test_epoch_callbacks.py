"""Keras callbacks called between epochs by whichever worker, compared with Keras alone."""

from __future__ import annotations

import pathlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from callback_callers import BATCH, caller
from model_files import LOSS, MODEL, REST
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.tasks import CallbackResult, EpochLogs
from edl_worker.engines.tensorflow import callback_state
from edl_worker.model_file.errors import ContractErrors

CALLBACKS = """
class Own(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.seen = []
    def on_epoch_end(self, epoch, logs=None):
        self.seen.append((epoch, sorted(logs)))
    def on_train_end(self, logs=None):
        with open(OUT, "w") as file:
            file.write(repr(self.seen))

def callbacks():
    return [
        tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        tf.keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1),
        tf.keras.callbacks.EarlyStopping(monitor="val_loss", patience=3),
        tf.keras.callbacks.CSVLogger(CSV),
        tf.keras.callbacks.TerminateOnNaN(),
        Own(),
    ]
"""
LOSSES = [1.0, 0.5, 0.6, 0.7, 0.4, 0.45, 0.5, 0.55, 0.3, 0.2]


def source(folder: Path) -> str:
    names = f"CSV, OUT = {str(folder / 'log.csv')!r}, {str(folder / 'seen.txt')!r}\n"
    return names + MODEL + REST + LOSS + CALLBACKS


def with_keras(zoo: ZooFolder) -> list[float]:
    """Learning rates of the epochs that Keras alone trains with the same losses."""
    file = zoo.load("mine")
    model: Any = file.model
    model.optimizer, model.stop_training = file.optimizer, False
    for each in file.callbacks:
        each.set_model(model)
        each.on_train_begin({})
    rates = []
    for epoch, loss in enumerate(LOSSES):
        for each in file.callbacks:
            each.on_epoch_begin(epoch, {})
        rates.append(float(file.optimizer.learning_rate))
        logs = {"loss": 2 * loss, "val_loss": loss}
        for each in file.callbacks:
            each.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    return rates


def test_calls_from_one_worker_or_from_many_decide_as_keras_does(
    zoo: ZooFolder, tmp_path: Path
) -> None:
    text = source(tmp_path)
    found = []
    for workers in (1, 3):
        callers = [caller(zoo, text) for _ in range(workers)]
        last, rate, rates, logs = CallbackResult(b""), None, [], {}
        for ended in range(11):
            for repeated in range(2 if ended == 4 else 1):  # the master died after that call
                which = callers[(ended + repeated) % workers]
                result = which.call(ended, EpochLogs(last.state, logs, rate))
            last = result
            rate = rate if last.learning_rate is None else last.learning_rate
            if last.stopped_by or ended == 10:
                break
            assert rate is not None
            rates.append(rate)
            logs = {"loss": 2 * LOSSES[ended], "val_loss": LOSSES[ended]}
        assert last.stopped_by == "EarlyStopping"
        found.append(rates)
        written = (tmp_path / "log.csv").read_text().splitlines()
        assert [line.split(",")[0] for line in written] == ["epoch", *map(str, range(ended))]
        seen = (tmp_path / "seen.txt").read_text()
        assert seen == repr([(e, ["learning_rate", "loss", "val_loss"]) for e in range(ended)])
    wanted = with_keras(zoo)
    for rates in found:
        np.testing.assert_allclose(rates, wanted, 1e-6)


OWN = """
import collections, logging, pathlib, threading

class Count(list):
    pass

class Own(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.lock, self.log, self.name = threading.Lock(), logging.getLogger("own"), lambda: "own"
    def on_train_begin(self, logs=None):
        self.counts, self.seen = Count(), []
    def on_epoch_end(self, epoch, logs=None):
        CHANGES

callbacks = [Own(), tf.keras.callbacks.EarlyStopping("loss")]
"""


def test_the_state_of_other_callbacks_is_refused(zoo: ZooFolder) -> None:
    text = MODEL + REST + LOSS + OWN.replace("CHANGES", "pass")
    state = caller(zoo, text).call(0, EpochLogs()).state
    other = caller(zoo, text.replace("callbacks = [Own(), ", "callbacks = ["))
    with pytest.raises(EdlError, match=r"has 1 callback, .* began with 2") as caught:
        other.call(1, EpochLogs(state, {"loss": 1.0}))
    assert caught.value.where == "callbacks"
    assert "began with" in caught.value.remedy


class Planted:
    """Runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit",)


def test_the_state_of_a_worker_is_data_and_never_code(zoo: ZooFolder) -> None:
    one = caller(zoo, MODEL + REST + LOSS + OWN.replace("CHANGES", "pass"))
    for state in (
        pickle.dumps([Planted()]),
        b"5",
        b"[1]",
        b"[" * 100_000,
        b'[{"a": {"planted": 1}}]',
        b'[{"a": {"array": ["|O", [1], "AAAAAAAAAAA="]}}]',
        b'[{"a": {"array": ["<f4", [99], "AAAAAA=="]}}]',
        b'[{"a": {"function": "exec"}}]',
    ):
        with pytest.raises(EdlError, match="does not fit the model file") as caught:
            one.call(1, EpochLogs(state, {"loss": 1.0}))
        assert caught.value.code == ErrorCode.MODEL_CONTRACT, state[:100]


VALUES = [
    *("None", "True", "2**70", "-0.0", "float('inf')", "'\\ud800\\n'", "b'\\0\\xff'"),
    *("(1, [2.5, {'a': {1, 2}, 3: ()}])", "frozenset('a')", "{}", "pathlib.Path('/a')"),
    *("np.arange(6, dtype='>i2').reshape(2, 3)", "np.float32(0.5)", "np.array(['é'])"),
    *("np.array(1+2j)", "np.zeros((0, 3), bool)", "np.str_('a')"),
]


def test_values_reach_the_next_worker_as_they_were(zoo: ZooFolder) -> None:
    kept = "; ".join(f"self.kept_{at} = {value}" for at, value in enumerate(VALUES))
    text = MODEL + REST + LOSS + OWN.replace("CHANGES", kept)
    state = caller(zoo, text).call(1, EpochLogs(logs={"loss": 1.0})).state
    own, _ = callback_state.decode(state)
    for at, value in enumerate(VALUES):
        found, wanted = own[f"kept_{at}"], eval(value, {"np": np, "pathlib": pathlib})
        assert type(found) is type(wanted), value
        assert repr(found) == repr(wanted), value


@pytest.mark.parametrize(
    "change",
    [
        "self.counts.append(1)",
        "self.seen = collections.deque([1])",
        "self.seen.append(np.datetime64('2020-01-01'))",
        "self.seen.append(self.seen)",
    ],
)
def test_a_change_that_no_other_worker_would_have_is_refused(zoo: ZooFolder, change: str) -> None:
    with pytest.raises(EdlError, match=r"Own has changed its attribute (counts|seen)") as caught:
        caller(zoo, MODEL + REST + LOSS + OWN.replace("CHANGES", change)).call(
            1, EpochLogs(logs={"loss": 1.0})
        )
    assert caught.value.code == ErrorCode.MODEL_CONTRACT
    assert "lists, dicts" in caught.value.remedy


def test_weights_are_not_for_callbacks_to_change(zoo: ZooFolder) -> None:
    text = (
        MODEL
        + REST
        + LOSS
        + """
class Own(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.set_weights([w * 0 + 1 for w in self.model.get_weights()])
callbacks = [Own()]
"""
    )
    with pytest.raises(EdlError, match="changed the model's weights"):
        caller(zoo, text).call(1, EpochLogs())


RATES = """
class Own(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        BEGIN
    def on_epoch_end(self, epoch, logs=None):
        END
callbacks = [tf.keras.callbacks.EarlyStopping("loss"), Own()]
"""
SETS = "self.model.optimizer.learning_rate = float('inf')"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "callbacks = [tf.keras.callbacks.LearningRateScheduler(lambda e: float('nan'))]\n",
            "the callback LearningRateScheduler has set the learning rate to nan",
        ),
        (RATES.replace("BEGIN", SETS).replace("END", "pass"), "callback Own has .* to inf"),
        (RATES.replace("BEGIN", "pass").replace("END", SETS), "callback Own has .* to inf"),
    ],
)
def test_a_learning_rate_that_is_not_finite_is_refused(
    zoo: ZooFolder, text: str, what: str
) -> None:
    with pytest.raises(EdlError, match=what) as caught:
        caller(zoo, MODEL + REST + LOSS + text).call(1, EpochLogs(logs={"loss": 1.0}))
    assert caught.value.code == ErrorCode.MODEL_CONTRACT
    assert caught.value.remedy == "Return a finite rate."


def test_a_rate_that_follows_a_schedule_stays_that_of_the_step(zoo: ZooFolder) -> None:
    """A worker that runs the optimizer itself has made steps since the last call."""
    rate = "tf.keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)"
    rest = REST.replace("(lr=0.1)", "()").replace("SGD(lr)", f"SGD({rate})")
    made = "callbacks = [tf.keras.callbacks.EarlyStopping('loss', patience=9)]\n"
    calling = caller(zoo, MODEL + rest + LOSS + made)
    state = calling.call(0, EpochLogs()).state
    calling._optimizer.iterations.assign(2)
    result = calling.call(1, EpochLogs(state, {"loss": 1.0}))
    assert result.learning_rate is None
    assert float(calling._optimizer.learning_rate) == 0.125


@pytest.mark.parametrize(
    ("made", "what"),
    [
        ("tf.keras.callbacks.EarlyStopping('accuracy')", "monitors 'accuracy', which no epoch"),
        (
            "*[tf.keras.callbacks.EarlyStopping(restore_best_weights=True) for _ in 'ab']",
            "two callbacks with restore_best_weights",
        ),
        ("tf.keras.callbacks.ModelCheckpoint('x.keras', save_freq=10)", "save_freq=10"),
        ("tf.keras.callbacks.LambdaCallback(on_train_batch_end=print)", "on_train_batch_end"),
        ("tf.keras.callbacks.SwapEMAWeights()", "on_test_begin"),
        ("'early stopping'", "has a str, which is not a Keras callback"),
    ],
)
def test_what_cannot_be_called_is_refused_by_name(zoo: ZooFolder, made: str, what: str) -> None:
    with pytest.raises(ContractErrors) as caught:
        caller(zoo, MODEL + REST + LOSS + f"callbacks = [{made}]\n")
    (error,) = caught.value.errors
    assert what in error.what
    assert error.remedy


METRICS = """
def eval_metrics_fn():
    return {
        "hits": tf.keras.metrics.BinaryAccuracy(),
        "distance": tf.keras.metrics.MeanAbsoluteError(name="mae"),
        "top_auc": lambda labels, outputs: tf.reduce_mean(outputs),
        "own": lambda labels, outputs: tf.reduce_mean(outputs),
    }
"""


@pytest.mark.parametrize(
    ("monitored", "found", "mode"),
    [
        ("val_loss", "val_loss", "min"),
        ("val_hits", "val_hits", "max"),
        ("val_binary_accuracy", "val_hits", "max"),
        ("val_accuracy", "val_hits", "max"),
        ("val_acc", "val_hits", "max"),
        ("val_mae", "val_distance", "min"),
        ("val_top_auc", "val_top_auc", "max"),
    ],
)
def test_values_are_monitored_by_the_names_of_keras(
    zoo: ZooFolder, tmp_path: Path, monitored: str, found: str, mode: str
) -> None:
    callbacks = f"""
monitor = {{"monitor": {monitored!r}}}
callbacks = [
    tf.keras.callbacks.EarlyStopping(patience=1, min_delta=0.25, **monitor),
    tf.keras.callbacks.ReduceLROnPlateau(patience=1, **monitor),
    tf.keras.callbacks.ModelCheckpoint(
        {str(tmp_path / "best.keras")!r}, save_best_only=True, **monitor),
]
"""
    one = caller(zoo, MODEL + REST + LOSS + METRICS + callbacks)
    another = caller(zoo, MODEL + REST + LOSS + METRICS + callbacks)
    state = one.call(0, EpochLogs()).state
    step = -1.0 if mode == "min" else 1.0
    for epoch, which in enumerate((one, another, one), 1):
        result = which.call(epoch, EpochLogs(state, {found: step * epoch}))
        state = result.state
        assert not result.stopped_by
    assert another.call(4, EpochLogs(state, {found: step * 3.2})).stopped_by == "EarlyStopping"
    assert (tmp_path / "best.keras").exists()


def test_a_value_that_may_rise_or_fall_needs_a_mode(zoo: ZooFolder) -> None:
    text = MODEL + REST + LOSS + METRICS + "callbacks = [tf.keras.callbacks.EarlyStopping(HOW)]\n"
    with pytest.raises(ContractErrors, match="should it rise or fall") as caught:
        caller(zoo, text.replace("HOW", "'val_own'"))
    assert 'mode="max"' in caught.value.errors[0].remedy
    caller(zoo, text.replace("HOW", "'val_own', mode='max'"))


def test_without_validation_data_only_the_loss_can_be_monitored(zoo: ZooFolder) -> None:
    text = "callbacks = [tf.keras.callbacks.EarlyStopping('val_loss')]\n"
    zoo.write("mine.py", MODEL + REST + LOSS + text)
    file = zoo.load("mine")
    file.build(BATCH)
    file.resolve_callbacks(validates=True)
    with pytest.raises(ContractErrors, match="--validation-data"):
        file.resolve_callbacks(validates=False)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("{epoch:02d}-{val_acc:.1f}.keras", "01-0.5.keras"),
        ("{val_loss:.2f}.keras", "0.25.keras"),
    ],
)
def test_a_checkpoint_is_named_by_values_of_the_epoch(
    zoo: ZooFolder, tmp_path: Path, written: str, path: str
) -> None:
    made = f"callbacks = [tf.keras.callbacks.ModelCheckpoint({str(tmp_path / written)!r})]\n"
    one = caller(zoo, MODEL + REST + LOSS + METRICS + made)
    one.call(0, EpochLogs())
    one.call(1, EpochLogs(b"", {"val_hits": 0.5, "val_loss": 0.25}))
    assert [each.name for each in tmp_path.glob("*.keras")] == [path]


def test_a_checkpoint_named_by_a_value_that_no_epoch_has(zoo: ZooFolder) -> None:
    made = "callbacks = [tf.keras.callbacks.ModelCheckpoint('{val_los:.2f}.keras')]\n"
    with pytest.raises(ContractErrors, match="'val_los', which no epoch reports") as caught:
        caller(zoo, MODEL + REST + LOSS + METRICS + made)
    (error,) = caught.value.errors
    assert "mine.py:" in error.where
    assert "Did you mean val_loss?" in error.remedy


def test_what_a_callback_raises_has_a_place_and_is_final(zoo: ZooFolder) -> None:
    made = "callbacks = [tf.keras.callbacks.LearningRateScheduler(lambda epoch: 'fast')]\n"
    with pytest.raises(EdlError, match="LearningRateScheduler raised") as caught:
        caller(zoo, MODEL + REST + LOSS + made).call(0, EpochLogs())
    assert caught.value.code == ErrorCode.MODEL_CONTRACT
    assert "mine.py:" in caught.value.where
