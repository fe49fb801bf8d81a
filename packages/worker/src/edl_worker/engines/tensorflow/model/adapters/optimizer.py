"""Optimizers: an instance, a class, a name of Keras, a function or a property."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import entry_points

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.internals import inner_optimizers, learning_rate_of
from edl_worker.engines.tensorflow.model.adapters.keras_names import suggest_name
from edl_worker.model_file import keras_2
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import type_with_article
from edl_worker.model_file.zoo import compatibility

# The update rules that the master has, by the name of the Keras class.
OPTIMIZERS = frozenset(
    (
        *("SGD", "Adam", "AdamW", "Adafactor", "Adagrad", "Adadelta", "RMSprop", "Adamax"),
        *("Nadam", "Ftrl", "Lamb", "Lion", "Muon", "ScheduleFreeAdamW"),
    )
)
_KNOWN_NAMES = ", ".join(sorted(OPTIMIZERS))
# The learning-rate schedules that the master follows, by the name of the Keras class.
SCHEDULES = (
    *("ExponentialDecay", "PiecewiseConstantDecay", "PolynomialDecay"),
    *("InverseTimeDecay", "CosineDecay", "CosineDecayRestarts"),
)
_ENTRY_POINTS = "edl.optimizers"
"""Where packages have further rules. The master, in the same environment, loads them."""

_MAX_RATE = 1000.0
"""Rates from here on make any model diverge."""
_ALLREDUCE = "--strategy allreduce, which runs any optimizer"
_REMEDY = "Return a Keras optimizer: tf.keras.optimizers.SGD(0.1)."


def adapt_optimizer(
    definition: Definition, caller: DefinitionCaller, *, replicated: bool = False
) -> keras.optimizers.Optimizer:
    """Return the optimizer, created once.

    Args:
        replicated: workers make the updates with the optimizer itself.

    Raises:
        EdlError: MODEL_CONTRACT or OPTIMIZER_UNSUPPORTED.
    """
    value = definition.value
    if not isinstance(value, keras.optimizers.Optimizer):
        if callable(value) or isinstance(value, property):
            value = caller.call(definition)
        if isinstance(value, str):
            value = _by_name(definition, value)
        value = compatibility.to_keras_3(value)
    if not isinstance(value, keras.optimizers.Optimizer):
        verb = "is" if value is definition.value else "returned"
        what = f"{verb} {type_with_article(value)}, not a Keras optimizer"
        of_keras_2 = keras_2.package_of(type(value))
        raise definition.error(what, keras_2.REMEDY if of_keras_2 else _REMEDY)
    rate = learning_rate_of(value)
    if keras_2.package_of(type(rate)):
        what = f"has a learning rate that is {type_with_article(rate)}"
        raise definition.error(what, keras_2.REMEDY)
    check_supported(value, definition.signature, definition.place, replicated)
    return value


def scale_loss_as_fit(
    optimizer: keras.optimizers.Optimizer, model: keras.Model
) -> keras.optimizers.Optimizer:
    """Return an optimizer as ``compile`` would give it to the model, unless the file called it."""
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scales or model.compiled or model.dtype_policy.name != "mixed_float16":
        return optimizer
    return keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")


def find_refusal(optimizer: keras.optimizers.Optimizer, definition: Definition) -> EdlError | None:
    """Return why a master cannot make the updates of an optimizer; None if it can."""
    try:
        check_supported(optimizer, definition.signature, definition.place)
    except EdlError as error:
        return error
    return None


def check_supported(
    optimizer: keras.optimizers.Optimizer, signature: str, place: str, replicated: bool = False
) -> None:
    """Refuse an optimizer that the master cannot run, or that cannot learn.

    Args:
        signature: of the definition that gives the optimizer, for the message.
        place: of that definition.
        replicated: workers run it.

    Raises:
        EdlError: OPTIMIZER_UNSUPPORTED.
    """
    name = type(optimizer).__name__
    rates = [_plain_rate_of(inner) for inner in inner_optimizers(optimizer)]
    if wrong := [rate for rate in rates if rate is not None and not 0 <= rate < math.inf]:
        raise _unsupported_error(
            f"{signature} gives {name} the learning rate {wrong[0]:g}",
            place,
            "Give a positive number, such as 0.01.",
        )
    for inner in inner_optimizers(optimizer):
        if (found := _find_excess(learning_rate_of(inner))) is not None:
            raise _unsupported_error(
                f"{signature} gives {name} {found}", place, _explain_schedule(inner)
            )
    if replicated:
        return
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        inner = type(optimizer.inner_optimizer).__name__
        raise _unsupported_error(
            f"{signature} gives {name}, and the master does not scale losses; "
            f"with the policy mixed_float16, compile(...) puts it around {inner}",
            place,
            f'Use {_ALLREDUCE}; or the policy "mixed_bfloat16", which needs no scaling, or '
            "compile(..., auto_scale_loss=False).",
        )
    is_known = name in OPTIMIZERS and type(optimizer).__module__.startswith("keras.")
    if not is_known and not entry_points(group=_ENTRY_POINTS, name=name):
        raise _unsupported_error(
            f"{signature} gives {name}, whose update rule the master does not implement",
            place,
            f"Use {_ALLREDUCE}; or one of {_KNOWN_NAMES}; or install a package that has a rule "
            f"for {name} (an entry point of the group {_ENTRY_POINTS}).",
        )
    if (rate := _unknown_rate(optimizer)) is not None:
        raise _unsupported_error(
            f"{signature} gives {name} the learning rate {rate}, which the master cannot compute",
            place,
            f"Use {_ALLREDUCE}; or a number or one of {', '.join(SCHEDULES)}; or add a "
            "keras.callbacks.LearningRateScheduler, which sets the rate of each epoch.",
        )
    if optimizer.loss_scale_factor:
        raise _unsupported_error(
            f"{signature} asks for loss_scale_factor={optimizer.loss_scale_factor}",
            place,
            f"Leave it out; mixed_bfloat16 needs none. Or use {_ALLREDUCE}.",
        )
    if optimizer.gradient_accumulation_steps:
        raise _unsupported_error(
            f"{signature} asks for "
            f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}",
            place,
            f"Leave it out; --update sync with --grads-to-wait does the same. Or use {_ALLREDUCE}.",
        )


def _find_excess(rate: object) -> str | None:
    """Return which rate of a schedule of Keras no model can learn with; None if there is none."""
    kind = type(rate)
    is_known = kind.__name__ in SCHEDULES and kind.__module__.startswith("keras.")
    if not is_known or not isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return None
    for step in (0, 1, 10, 100, 1000):
        value = float(keras.ops.convert_to_numpy(rate(step)))
        if not 0 <= value < _MAX_RATE:
            return (
                f"the schedule {kind.__name__}, whose learning rate is {value:.3g} at update {step}"
            )
    return None


def _explain_schedule(optimizer: keras.optimizers.Optimizer) -> str:
    settings = learning_rate_of(optimizer).get_config()
    names = ("decay_steps", "decay_rate")
    if all(name in settings for name in names) and settings["decay_rate"] > 1:
        given = ", ".join(f"{name}={settings[name]:g}" for name in names)
        return (
            f"It got {given}: the number of updates comes before the rate of the decay, which is "
            "below 1, as in ExponentialDecay(0.1, decay_steps=1000, decay_rate=0.96)."
        )
    return f"Correct its arguments: {settings}."


def set_learning_rate(optimizers: Sequence[keras.optimizers.Optimizer], rate: float) -> None:
    """Replace the constant learning rate of the only optimizer, as ``--set`` asks.

    Raises:
        EdlError: USAGE; there are several optimizers, or the rate is a schedule.
    """
    optimizers = [inner for each in optimizers for inner in inner_optimizers(each)]
    if len(optimizers) != 1:
        raise _rate_error(
            rate,
            f"the model has {len(optimizers)} optimizers, each with a learning rate of its own",
            "Change the rates in the model file.",
        )
    (optimizer,) = optimizers
    if _plain_rate_of(optimizer) is None:
        schedule = type(learning_rate_of(optimizer)).__name__
        raise _rate_error(
            rate,
            f"the learning rate of {type(optimizer).__name__} follows the schedule {schedule}",
            "Change the schedule in the model file: only a constant rate, such as that of "
            "Adam(0.001), can be set.",
        )
    optimizer.learning_rate = rate


def _rate_error(rate: float, what: str, remedy: str) -> EdlError:
    where = f"--set learning-rate={rate:g}"
    return EdlError(ErrorCode.USAGE, what, where=where, remedy=remedy)


def _unknown_rate(optimizer: keras.optimizers.Optimizer) -> str | None:
    """Return the name of a learning rate that is the user's function or class; None otherwise."""
    rate = learning_rate_of(optimizer)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        kind = type(rate)
        known = kind.__name__ in SCHEDULES and kind.__module__.startswith("keras.")
        return None if known else kind.__name__
    return getattr(rate, "__name__", type(rate).__name__) if callable(rate) else None


def _plain_rate_of(optimizer: keras.optimizers.Optimizer) -> float | None:
    """Return the learning rate of an optimizer; None if it is a schedule or a function."""
    rate = learning_rate_of(optimizer)
    return float(rate.numpy()) if isinstance(rate, keras.Variable) else None


def _by_name(definition: Definition, name: str) -> keras.optimizers.Optimizer:
    try:
        optimizer: keras.optimizers.Optimizer = keras.optimizers.get(name)
    except ValueError:
        raise _unsupported_error(
            f"{definition.signature} names {name!r}, which Keras does not have",
            definition.place,
            suggest_name("optimizer", name) or f"Use one of {_KNOWN_NAMES}.",
        ) from None
    return optimizer


def _unsupported_error(what: str, place: str, remedy: str) -> EdlError:
    return EdlError(ErrorCode.OPTIMIZER_UNSUPPORTED, what, where=place, remedy=remedy)
