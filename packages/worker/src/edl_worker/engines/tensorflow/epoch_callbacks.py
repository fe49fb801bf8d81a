"""Calls the Keras callbacks of a model file between two epochs.

Any worker may make the next call. So it gets what callbacks remember (``callback_state``). What
callbacks decide goes back to the master with it.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.limits import MAX_CALLBACK_STATE_NBYTES
from edl_worker.core.tasks import CallbackResult, EpochLogs
from edl_worker.engines.tensorflow import callback_state, module_values
from edl_worker.engines.tensorflow.internals import inner_optimizers, learning_rate_of
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.model.adapters.callbacks import restores_best
from edl_worker.engines.tensorflow.training.arena import Arena
from edl_worker.model_file.errors import user_code_error

log = logging.getLogger(__name__)

_OF_CODE = (AttributeError, IndexError, KeyError, NameError, TypeError, ValueError)
"""What a callback raises again if another worker calls it."""

_KEPT = "kept"
"""The ``best_weights`` of an EarlyStopping: the parameter stores have them."""


class CallbackCaller:
    """The callbacks of a model file, ready to be called.

    Args:
        file: has callbacks and optimizer.
        arena: the weights, which callbacks may look at and must not change.
        epochs: how many the job has.
    """

    def __init__(self, file: ModelFile, arena: Arena, epochs: int) -> None:
        self._file = file
        self._callbacks = file.callbacks
        self._arena = arena
        self._epochs = epochs
        self._model = file.model
        self._optimizer = file.optimizer
        self._configured = self._rate() if file.callbacks else np.float32()
        self._begun = False
        self._fingerprints = [callback_state.take_fingerprints(each) for each in file.callbacks]

    def call(self, ended: int, call: EpochLogs) -> CallbackResult:
        """Call all of them once; the model has the newest values.

        Args:
            ended: epochs that are over; 0: the training begins.
            call: what the call before has left.

        Raises:
            EdlError: MODEL_CONTRACT, a callback changes weights, sets a learning rate that is not
                finite, or remembers what cannot be kept, or the state is of other callbacks.
        """
        model, logs = self._model, dict(call.logs)
        before, others = self._arena.pack(), module_values.read_values()
        model.optimizer, model.stop_training = self._optimizer, False
        rate = self._configured if call.learning_rate is None else call.learning_rate
        if self._rate() != np.float32(rate) and not self._follows_schedule():
            self._optimizer.learning_rate = rate
        rate = self._rate()
        self._begin(ended, call.state)
        stopped_by, keeps_best, over, has_best = "", False, not call.epoch_begin, False
        if not (call.train_end or call.epoch_begin):
            stopped_by, keeps_best = self._end_epoch(ended, logs)
            over = bool(stopped_by) or ended >= self._epochs
            # Then a later call ends the training, once the stores have restored the best values.
            has_best = over and any(map(_has_best, self._callbacks))
        for callback in self._callbacks:
            with self._explain_errors(callback):
                if not over:
                    callback.on_epoch_begin(ended, {})
                elif not has_best:
                    _end(callback, logs)
            self._check_rate(callback)
        if not np.array_equal(before, self._arena.pack()):
            raise _contract_error(
                "a callback has changed the model's weights, which only updates may change",
                "Callbacks may read the weights, but not change them.",
            )
        new = self._rate()
        remembering = [None if _is_log(each) else each for each in self._callbacks]
        state = callback_state.encode(remembering, self._fingerprints)
        if len(state) > MAX_CALLBACK_STATE_NBYTES:
            raise _contract_error(
                f"the callbacks have {len(state)} bytes of state, "
                f"more than {MAX_CALLBACK_STATE_NBYTES}",
                "Keep large values out of their attributes, for example in a file.",
            )
        changed = None if new == rate else float(new)
        warnings = _describe_changes(others)
        return CallbackResult(state, stopped_by, changed, keeps_best, has_best, warnings)

    def _end_epoch(self, ended: int, logs: dict[str, Any]) -> tuple[str, bool]:
        """Return the callback that ends the training, if any, and whether these values are best."""
        stopped_by, keeps_best = "", False
        for callback in self._callbacks if ended else ():
            with self._explain_errors(callback):
                if isinstance(callback, keras.callbacks.CSVLogger):
                    _log_epoch(callback, ended - 1, logs)
                else:
                    callback.on_epoch_end(ended - 1, logs)
            self._check_rate(callback)
            keeps_best |= _hand_over_best(callback)
            if self._model.stop_training and not stopped_by:
                stopped_by = type(callback).__name__
        return stopped_by, keeps_best

    def _begin(self, ended: int, state: bytes) -> None:
        """Make the callbacks what they were after the last call, wherever that was made."""
        for number, callback in enumerate(self._callbacks):
            with self._explain_errors(callback):
                callback.set_model(self._model)
                callback.set_params({"epochs": self._epochs, "steps": None, "verbose": 0})
                if not ended or not (self._begun or _is_log(callback)):
                    callback.on_train_begin({})
            if not ended or not (self._begun or _is_log(callback)):
                self._fingerprints[number] = callback_state.take_fingerprints(callback)
            if _is_log(callback):
                callback.on_train_end()
            self._check_rate(callback)
        self._begun = True
        if ended and state:
            for callback, remembered in zip(self._callbacks, self._unpack(state), strict=True):
                vars(callback).update(remembered)

    @contextmanager
    def _explain_errors(self, callback: keras.callbacks.Callback) -> Iterator[None]:
        """Turn what the code of a callback raises, wherever it runs, into an error of the file."""
        try:
            yield
        except _OF_CODE as error:
            raise user_code_error(
                error,
                self._file.zoo_root,
                code=ErrorCode.MODEL_CONTRACT,
                action=f"the callback {type(callback).__name__} raised",
                place=self._file.callbacks_place,
                remedy="Correct the callback, or leave it out.",
            ) from error

    def _unpack(self, state: bytes) -> list[callback_state.Attributes]:
        """Return the state of each callback.

        Raises:
            EdlError: MODEL_CONTRACT, the state is of other callbacks.
        """
        remedy = "Use the callbacks that the job began with, or another name or directory."
        try:
            found = callback_state.decode(state)
        except ValueError as error:
            raise _contract_error(
                f"the saved state of the callbacks does not fit the model file: {error}", remedy
            ) from error
        if len(found) != len(self._callbacks):
            count = len(self._callbacks)
            raise _contract_error(
                f"the model file has {count} callback{'s'[: count != 1]}, "
                f"and the job began with {len(found)}",
                remedy,
            )
        return found

    def _check_rate(self, callback: keras.callbacks.Callback) -> None:
        """Refuse what the callback that was called last has made of the learning rate."""
        rate = self._rate()
        if not np.isfinite(rate):
            name = type(callback).__name__
            raise _contract_error(
                f"the callback {name} has set the learning rate to {rate}, which is not finite",
                "Return a finite rate.",
            )

    def _follows_schedule(self) -> bool:
        """Whether the rate is that of the optimizer's step, and nothing can set it."""
        optimizer = self._optimizer
        return optimizer is not None and any(
            isinstance(learning_rate_of(each), keras.optimizers.schedules.LearningRateSchedule)
            for each in inner_optimizers(optimizer)
        )

    def _rate(self) -> np.float32:
        # A keras.optimizers.MultiOptimizer has none that could be read or set.
        rate = getattr(self._optimizer, "learning_rate", 0.0)
        return np.float32(keras.ops.convert_to_numpy(rate))


def _describe_changes(before: dict[str, Any]) -> tuple[str, ...]:
    """Return a warning for each value outside of the model that the callbacks have changed."""
    return tuple(
        f"A callback changes {name}. Only the worker that calls it has the new value: other "
        "workers, and those that start later, have the one that the model file gives it."
        for name in module_values.find_changes(before, module_values.read_values())
    )


def _hand_over_best(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback has taken the present weights for the best; the stores keep them."""
    if not restores_best(callback):
        return False
    stopping: Any = callback
    if stopping.best_weights is None or isinstance(stopping.best_weights, str):
        return False
    stopping.best_weights = _KEPT
    return True


def _has_best(callback: keras.callbacks.Callback) -> bool:
    """Whether the stores keep values that the callback wants to be the model's at the end."""
    return restores_best(callback) and getattr(callback, "best_weights", None) is not None


def _end(callback: keras.callbacks.Callback, logs: dict[str, Any]) -> None:
    """Call ``on_train_end`` on the callbacks, now that the model has its last values."""
    if not restores_best(callback):
        callback.on_train_end(logs)
        return
    stopping: Any = callback
    kept, stopping.best_weights = stopping.best_weights, None  # the stores have restored them
    stopping.on_train_end(logs)
    stopping.best_weights = kept


def _log_epoch(callback: keras.callbacks.CSVLogger, epoch: int, logs: dict[str, Any]) -> None:
    """Write a row; the file is open meanwhile only, for another worker may write the next one."""
    appends = callback.append
    if epoch and not appends:
        _drop_rows(Path(callback.filename), callback.sep, epoch)  # it may be trained again
        callback.append = True
    callback.on_train_begin()
    callback.on_epoch_end(epoch, logs)
    callback.on_train_end()
    callback.append = appends


def _drop_rows(path: Path, separator: str, epoch: int) -> None:
    """Remove the rows of an epoch and of later ones."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = list(csv.reader(lines, delimiter=separator))
    kept = [
        line
        for line, row in zip(lines, rows, strict=True)
        if not (row and row[0].isdigit() and int(row[0]) >= epoch)
    ]
    path.write_text("".join(kept), encoding="utf-8")


def _is_log(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback remembers nothing but its file; see ``_log_epoch``."""
    return isinstance(callback, keras.callbacks.CSVLogger)


def _contract_error(what: str, remedy: str) -> EdlError:
    return EdlError(ErrorCode.MODEL_CONTRACT, what, where="callbacks", remedy=remedy)
