"""Keras callbacks: which ones a job can call at the ends of its epochs."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import keras

from edl_worker.model_file import keras_2
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import type_with_article
from edl_worker.model_file.known_names import did_you_mean
from edl_worker.model_file.zoo import compatibility

log = logging.getLogger(__name__)

Callbacks = tuple[keras.callbacks.Callback, ...]

# What edl does itself, and where it is.
_UNNEEDED_CALLBACKS: dict[type, str] = {
    keras.callbacks.TerminateOnNaN: "a job fails at a loss that is not finite",
    keras.callbacks.TensorBoard: "edl writes curves for TensorBoard, see --tensorboard-dir",
    keras.callbacks.BackupAndRestore: "edl takes snapshots",
    keras.callbacks.History: "edl status shows losses and metrics",
    keras.callbacks.ProgbarLogger: "edl shows the progress",
}
_BATCH_HOOKS = (
    *("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end"),
    *("on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end"),
    *("on_predict_begin", "on_predict_end", "on_predict_batch_begin", "on_predict_batch_end"),
)


def adapt_callbacks(definition: Definition, caller: DefinitionCaller) -> Callbacks:
    """Return the callbacks of ``callbacks``, a list or a function that returns one.

    Raises:
        EdlError: MODEL_CONTRACT, one of them cannot be called between epochs.
    """
    value = caller.call(definition) if callable(definition.value) else definition.value
    if value is None:
        compatibility.warn_once(
            f"{definition.signature} returned no callbacks: is a return missing?"
        )
        return ()
    found = list(value) if isinstance(value, list | tuple) else [value]
    for each in found:
        if isinstance(each, type):
            raise definition.error(
                f"has the class {each.__name__}, not a callback", f"Write {each.__name__}(...)."
            )
        if not isinstance(each, keras.callbacks.Callback):
            raise definition.error(
                f"has {type_with_article(each)}, which is not a Keras callback",
                keras_2.REMEDY
                if keras_2.package_of(type(each))
                else "Return a list of keras.callbacks.Callback. A function becomes one with "
                "keras.callbacks.LambdaCallback(on_epoch_end=function).",
            )
    called = [each for each in found if not _is_done_already(each)]
    for each in called:
        _check(definition, each)
    if sum(restores_best(each) for each in called) > 1:
        raise definition.error(
            "has two callbacks with restore_best_weights=True, but only one can choose the best",
            "Leave it out of all but one.",
        )
    return tuple(called)


def restores_best(callback: keras.callbacks.Callback) -> bool:
    """Whether the callback makes the values of the best epoch the model."""
    return bool(getattr(callback, "restore_best_weights", False))


def _is_done_already(callback: keras.callbacks.Callback) -> bool:
    for kind, instead in _UNNEEDED_CALLBACKS.items():
        if isinstance(callback, kind):
            log.info("the callback %s is not called: %s", type(callback).__name__, instead)
            return True
    return False


def _check(definition: Definition, callback: keras.callbacks.Callback) -> None:
    name = type(callback).__name__
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        if callback.save_freq != "epoch":
            raise definition.error(
                f"has {name}(save_freq={callback.save_freq!r})",
                'Leave save_freq at "epoch"; --checkpoint-steps counts updates.',
            )
        return
    schedule = getattr(callback, "schedule", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        kind = type(schedule).__name__
        raise definition.error(
            f"has {name}({kind}), but {name} takes a function of the epoch, and {kind} is a "
            "schedule of updates",
            f"Leave this callback out and give the optimizer the schedule: Adam({kind}(...)); or "
            f"write a function: {name}(lambda epoch, rate: 0.01 * 0.9**epoch).",
        )
    _check_hooks(definition, callback)
    hooks = [hook for hook in _BATCH_HOOKS if _overrides(callback, hook)]
    if hooks:
        raise definition.error(
            f"has {name}, whose {hooks[0]} cannot be called: minibatches are computed by many "
            "workers, and evaluations by others",
            "Do it in on_epoch_begin or on_epoch_end.",
        )
    stops = isinstance(callback, keras.callbacks.EarlyStopping)
    if getattr(callback, "restore_best_weights", False) and not stops:
        raise definition.error(
            f"has {name}, whose restore_best_weights only works in EarlyStopping",
            "Derive the callback from keras.callbacks.EarlyStopping.",
        )


def _check_hooks(definition: Definition, callback: keras.callbacks.Callback) -> None:
    """Refuse hooks with names that nothing calls, or that cannot be called as Keras does it."""
    name, known = type(callback).__name__, dir(keras.callbacks.Callback)
    hooks = [hook for hook in known if hook.startswith("on_")]
    is_lambda = isinstance(callback, keras.callbacks.LambdaCallback)
    own = {*vars(callback), *vars(type(callback))} if not is_lambda else set(vars(callback))
    for each in sorted(own - set(known)):
        near = did_you_mean(each, hooks) if each.startswith("on_") else None
        if near and not any(hook in own for hook in hooks if hook in near):
            raise definition.error(
                f"has {name} with {each}, which nothing calls",
                "Use on_epoch_begin, on_epoch_end, on_train_begin or on_train_end.",
            )
    for hook, count in (("on_epoch_begin", 2), ("on_epoch_end", 2), ("on_train_begin", 1)):
        if hook in own and not _accepts(getattr(callback, hook), count):
            arguments = "epoch, logs=None" if count > 1 else "logs=None"
            raise definition.error(
                f"has {name}, whose {hook} does not take ({arguments.removesuffix('=None')})",
                f"Write def {hook}(self, {arguments}).",
            )


def _accepts(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a function without a signature, such as print
        return True
    return True


def _overrides(callback: keras.callbacks.Callback, name: str) -> bool:
    own: Any = getattr(type(callback), name, None)
    return name in vars(callback) or own is not getattr(keras.callbacks.Callback, name, None)
