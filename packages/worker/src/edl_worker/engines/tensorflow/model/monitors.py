"""The values of an epoch that callbacks monitor, and whether they should rise or fall."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.internals import (
    inner_optimizers,
    learning_rate_of,
    metric_direction,
)
from edl_worker.model_file.known_names import did_you_mean

MetricSources = Mapping[str, keras.metrics.Metric | None]
"""Name of each value of an evaluation, to the Keras metric that it comes from, if there is one."""

_ACCURACY = ("accuracy", "acc")
_RISING = (*_ACCURACY, "auc")
"""Ends of the names of functions that should rise, as Keras has always taken them."""
_RATE_CALLBACKS = (keras.callbacks.ReduceLROnPlateau, keras.callbacks.LearningRateScheduler)


def find_fixed_rates(
    callbacks: Iterable[keras.callbacks.Callback],
    optimizer: keras.optimizers.Optimizer | None,
    place: str,
) -> list[EdlError]:
    """Return an error for each callback that would set a rate that Keras does not let it set.

    Args:
        place: of the callbacks, for messages.
    """
    inner = [] if optimizer is None else inner_optimizers(optimizer)
    if len(inner) > 1:
        why = f"of which {type(optimizer).__name__} has several"
    else:
        kinds = [type(rate).__name__ for rate in map(learning_rate_of, inner) if _is_schedule(rate)]
        if not kinds:
            return []
        why = f"which follows the schedule {kinds[0]}"
    return [
        EdlError(
            ErrorCode.MODEL_CONTRACT,
            f"{type(each).__name__} sets the learning rate, {why}",
            where=place,
            remedy="Give the optimizer a constant learning rate, or leave this callback out.",
        )
        for each in callbacks
        if isinstance(each, _RATE_CALLBACKS)
    ]


def _is_schedule(rate: Any) -> bool:
    return isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)


def resolve_paths(
    callbacks: Iterable[keras.callbacks.Callback], sources: MetricSources, place: str
) -> list[EdlError]:
    """Make the paths of ``ModelCheckpoint`` contain values by the names that epochs have.

    Args:
        sources: of what an evaluation measures; empty if there is none.
        place: of the callbacks, for messages.

    Returns:
        An error for each path with a value that no epoch has.
    """
    errors = []
    choice = sorted({"epoch", *_EPOCH_VALUES, *(f"val_{source}" for source in sources)})
    for each in callbacks:
        if not isinstance(each, keras.callbacks.ModelCheckpoint):
            continue
        path = str(each.filepath)
        for name in sorted({name for _, name, _, _ in Formatter().parse(path) if name}):
            known = name
            if name.startswith("val_"):
                known = f"val_{_name_in_epochs(name.removeprefix('val_'), sources)}"
            if known not in choice:
                what = f"the path {path!r} of ModelCheckpoint has {name!r}, which no epoch reports"
                remedy = f"{did_you_mean(name, choice) or ''} Write one of ".lstrip()
                remedy += f"{', '.join(choice)}."
                errors.append(EdlError(ErrorCode.MODEL_CONTRACT, what, where=place, remedy=remedy))
            path = re.sub(rf"\{{{re.escape(name)}(?=[:!}}])", f"{{{known}", path)
        each.filepath = path
    return errors


def resolve_monitors(
    callbacks: Iterable[keras.callbacks.Callback], sources: MetricSources, place: str
) -> list[EdlError]:
    """Make callbacks monitor values by the names that epochs have, in a known direction.

    Keras looks for both in the metrics of a compiled model, which a job does not have.

    Args:
        sources: of what an evaluation measures; empty if there is none.
        place: of the model file, for messages.

    Returns:
        An error for each callback whose value or direction is not known.
    """
    callbacks = list(callbacks)
    errors = find_wrong_values(callbacks, place)
    for each in callbacks:
        monitored = getattr(each, "monitor", None)
        needed = not isinstance(each, keras.callbacks.ModelCheckpoint) or each.save_best_only
        if not isinstance(monitored, str) or not needed:
            continue
        name = monitored.removeprefix("val_")
        if monitored.startswith("val_"):
            name = _name_in_epochs(name, sources)
            each.monitor = f"val_{name}"
        known = name in sources if monitored.startswith("val_") else name in _EPOCH_VALUES
        kind = type(each).__name__
        if not known:
            choice = sorted({*_EPOCH_VALUES, *(f"val_{source}" for source in sources)})
            what = f"{kind} monitors {monitored!r}, which no epoch reports"
            remedy = f"{did_you_mean(monitored, choice) or ''} Monitor one of ".lstrip()
            if not sources and monitored.startswith("val_"):
                remedy = "Give the job --validation-data, or monitor one of "
            remedy += f"{', '.join(choice)}."
            errors.append(EdlError(ErrorCode.MODEL_CONTRACT, what, where=place, remedy=remedy))
        elif getattr(each, "mode", None) == "auto" and each.monitor_op is None:
            direction = _direction(name, sources.get(name))
            if direction is None:
                what = f"{kind} monitors {monitored!r}: should it rise or fall?"
                remedy = 'Add mode="max" if more is better, or mode="min".'
                errors.append(EdlError(ErrorCode.MODEL_CONTRACT, what, where=place, remedy=remedy))
            else:
                each.mode = direction
    return errors


def find_wrong_values(callbacks: Iterable[keras.callbacks.Callback], place: str) -> list[EdlError]:
    """Return an error for each callback of Keras with a value that fails after an epoch only.

    Args:
        place: of the callbacks, for messages.
    """
    errors = []
    for each in callbacks:
        if not type(each).__module__.startswith("keras."):
            continue
        for name in _NUMBERS:
            value = getattr(each, name, None)
            if isinstance(value, str):
                what = f"{type(each).__name__} has {name}={value!r}, a text and no number"
                remedy = f"Write the number without quotes: {name}={value}."
                errors.append(EdlError(ErrorCode.MODEL_CONTRACT, what, where=place, remedy=remedy))
        if not callable(rate := getattr(each, "schedule", callable)):
            what = f"{type(each).__name__} takes a function of the epoch, and got {rate!r}"
            remedy = (
                "Write LearningRateScheduler(lambda epoch, rate: rate * 0.9); a constant rate is "
                "one of the optimizer."
            )
            errors.append(EdlError(ErrorCode.MODEL_CONTRACT, what, where=place, remedy=remedy))
    return errors


_NUMBERS = ("patience", "min_delta", "factor", "cooldown", "min_lr", "start_from_epoch", "baseline")
"""Attributes of callbacks of Keras that it does not check itself."""
_EPOCH_VALUES = ("loss", "learning_rate")


def _name_in_epochs(name: str, sources: MetricSources) -> str:
    """Return the name of the value that ``name`` means to Keras; the same name if unknown."""
    if name in sources:
        return name
    by_class = [
        own for own, metric in sources.items() if metric is not None and metric.name == name
    ]
    if not by_class and name in _ACCURACY:
        by_class = [own for own, metric in sources.items() if _is_accuracy(own, metric)]
    return by_class[0] if len(by_class) == 1 else name


def _is_accuracy(name: str, metric: keras.metrics.Metric | None) -> bool:
    names = [name] if metric is None else [name, metric.name]
    return any(each.endswith(_ACCURACY) for each in names)


def _direction(name: str, metric: keras.metrics.Metric | None) -> str | None:
    if name in _EPOCH_VALUES or name.endswith("_loss"):
        return "min"
    found = metric_direction(metric) if metric is not None else None
    if found is None and name.endswith(_RISING):
        return "max"
    return found
