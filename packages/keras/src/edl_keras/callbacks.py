"""Keras callbacks of ``fit``: which travel to the workers, and which are called in this process."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType
from typing import Any, TypeAlias

import keras

from edl_keras.errors import kind_of, wrong_argument
from edl_keras.source_code import NoExpression, SourceCode

Callback: TypeAlias = keras.callbacks.Callback

_DONE_BY_JOBS = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.History,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.TerminateOnNaN,
)
_DECIDE = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ReduceLROnPlateau,
)
_REPORT = (
    keras.callbacks.CSVLogger,
    keras.callbacks.LambdaCallback,
    keras.callbacks.RemoteMonitor,
)
_OF_KERAS = frozenset(("model", "_model", "params"))
_BATCHES = (
    *("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end"),
    *("on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end"),
    *("on_predict_begin", "on_predict_end", "on_predict_batch_begin", "on_predict_batch_end"),
)


@dataclass(slots=True)
class SortedCallbacks:
    """The callbacks of one call of ``fit``.

    Attributes:
        in_job: change the training, so a worker calls them.
        here: only look at the values of epochs, so this process calls them.
        tensorboard_dir: where a ``TensorBoard`` wants the curves; empty without one.
    """

    in_job: list[Callback] = field(default_factory=list)
    here: list[Callback] = field(default_factory=list)
    tensorboard_dir: str = ""


def sort_callbacks(callbacks: Any, *, shares_files: bool) -> SortedCallbacks:
    """Decide where each callback is called.

    Args:
        shares_files: whether workers write into the folders of this machine.

    Raises:
        Problem: one of them cannot be called in a job.
    """
    found = SortedCallbacks()
    given = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    for each in () if callbacks is None else given:
        if not isinstance(each, keras.callbacks.Callback):
            raise wrong_argument(
                "callbacks",
                f"callbacks has {kind_of(each)}, which is not a Keras callback",
                "Give instances of keras.callbacks.Callback.",
            )
        if isinstance(each, keras.callbacks.TensorBoard):
            found.tensorboard_dir = str(Path(each.log_dir).absolute())
        if isinstance(each, _DONE_BY_JOBS):
            continue
        _check(each)
        if isinstance(each, keras.callbacks.ModelCheckpoint) and not shares_files:
            raise wrong_argument(
                "callbacks",
                f"{type(each).__name__} writes files of the machine of a worker",
                "Use checkpoint_dir and checkpoint_steps, or save the model after fit.",
            )
        (found.in_job if _uses_model(each) else found.here).append(each)
    return found


def check_monitors(callbacks: Any) -> None:
    """Check that no callback monitors a value of validation data, of which there is none.

    Raises:
        Problem: one does.
    """
    for each in callbacks if isinstance(callbacks, list | tuple) else [callbacks]:
        monitored = getattr(each, "monitor", None)
        needed = not isinstance(each, keras.callbacks.ModelCheckpoint) or each.save_best_only
        if isinstance(monitored, str) and monitored.startswith("val_") and needed:
            raise wrong_argument(
                "callbacks",
                f"{type(each).__name__} monitors {monitored!r}, and there is no validation data",
                "Give validation_data=(x_test, y_test) or validation_split=0.2, or write "
                'monitor="loss".',
            )


def write_callbacks(code: SourceCode, callbacks: Sequence[Callback]) -> None:
    """Append ``make_callbacks``, which makes the callbacks anew with the attributes they have.

    Raises:
        Problem: an attribute cannot travel.
    """
    lines = []
    for number, callback in enumerate(callbacks):
        name = f"callback_{number}"
        lines.append(f"    {name} = {code.add(type(callback))}.__new__({code.add(type(callback))})")
        attributes = {key: value for key, value in vars(callback).items() if key not in _OF_KERAS}
        items = []
        for key, value in attributes.items():
            if key == "filepath":
                value = str(Path(value).absolute())
            try:
                items.append(f"{key!r}: {code.expression(value)}")
            except NoExpression:
                raise wrong_argument(
                    "callbacks",
                    f"the attribute {key} of {type(callback).__name__} is {kind_of(value)},"
                    " which cannot travel to workers",
                    "Keep numbers, texts, lists, dicts, arrays and functions in its attributes.",
                ) from None
        lines.append(
            f"    vars({name}).update({{'params': None, '_model': None, {', '.join(items)}}})"
        )
    names = ", ".join(f"callback_{number}" for number in range(len(callbacks)))
    code.append("\n".join(("def make_callbacks():", *lines, f"    return [{names}]")))


def _check(callback: Callback) -> None:
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        return  # the job checks save_freq
    for hook in _BATCHES:
        own: Any = getattr(type(callback), hook, None)
        if hook in vars(callback) or own is not getattr(Callback, hook, None):
            raise wrong_argument(
                "callbacks",
                f"{type(callback).__name__} has {hook}, and minibatches are computed by workers,"
                " many at the same time",
                "Do it in on_epoch_begin or on_epoch_end.",
            )


def _uses_model(callback: Callback) -> bool:
    """Return whether a callback reads or changes the model, and does not only look at values."""
    if isinstance(callback, _REPORT):
        return False
    if isinstance(callback, _DECIDE):
        return True
    return any(
        _mentions_model(function)
        for kind in type(callback).__mro__
        if kind is not Callback and issubclass(kind, keras.callbacks.Callback)
        for function in vars(kind).values()
        if inspect.isfunction(function)
    )


def _mentions_model(function: Any) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return "model" in function.__code__.co_names or "_model" in function.__code__.co_names
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("model", "_model")
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        for node in ast.walk(tree)
    )


class LocalCallbacks:
    """The callbacks that this process calls with the values that a job reports."""

    def __init__(self, callbacks: Sequence[Callback], model: keras.Model, epochs: int) -> None:
        self._callbacks = callbacks
        for each in callbacks:
            each.set_model(model)
            each.set_params({"epochs": epochs, "steps": None, "verbose": 0})

    def begin(self) -> None:
        """Call ``on_train_begin``."""
        self._call("on_train_begin", {})

    def end_epoch(self, epoch: int, logs: dict[str, float]) -> None:
        """Call ``on_epoch_begin`` and ``on_epoch_end``."""
        self._call("on_epoch_begin", epoch, {})
        self._call("on_epoch_end", epoch, dict(logs))

    def end(self, logs: dict[str, float]) -> None:
        """Call ``on_train_end``."""
        self._call("on_train_end", dict(logs))

    def _call(self, hook: str, *args: Any) -> None:
        for each in self._callbacks:
            method: MethodType = getattr(each, hook)
            method(*args)
