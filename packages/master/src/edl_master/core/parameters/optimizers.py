"""Optimizers: a rule, a learning rate, and the options that all optimizers share.

``parse_optimizer`` reads what ``keras.optimizers.serialize`` writes. What is unsupported is refused
at once; no option is ever ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edl_master.core.parameters.elementwise_rules import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    Ftrl,
    Lion,
    Nadam,
    RMSprop,
    ScheduleFreeAdamW,
)
from edl_master.core.parameters.gradient_clip import ClipGlobalNorm, ClipNorm, Clipping, ClipValue
from edl_master.core.parameters.keras_config import (
    OptimizerUnsupported,
    foreign_class,
    read_fields,
    unwrap,
)
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.schedules import Schedule, parse_learning_rate
from edl_master.core.parameters.update_rules import Rule, WholeVariableRule
from edl_master.core.parameters.whole_variable_rules import Adafactor, Lamb, Muon

RULES: Mapping[str, type[Any]] = {
    "SGD": SGD,
    "Adam": Adam,
    "AdamW": Adam,
    "Adafactor": Adafactor,
    "Adagrad": Adagrad,
    "Adadelta": Adadelta,
    "RMSprop": RMSprop,
    "Adamax": Adamax,
    "Nadam": Nadam,
    "Ftrl": Ftrl,
    "Lamb": Lamb,
    "Lion": Lion,
    "Muon": Muon,
    "ScheduleFreeAdamW": ScheduleFreeAdamW,
}
"""Rules of Keras's optimizers, by the name of the class."""

FindRule = Callable[[str], type[Any] | None]
"""From the name of a class of optimizers to the rule that an installed package has for it; None if
none has. It raises ``OptimizerUnsupported`` if that rule cannot be used."""

OTHERS = "others"
"""Key next to ``class_name`` with further optimizers, each with the names of its ``variables``."""

EXCLUDED_FROM_DECAY = "excluded_from_weight_decay"
"""Key next to ``class_name`` with the names of variables without weight decay: what the user told
``exclude_from_weight_decay``, which Keras itself does not serialize."""

_DEFAULT_RATES = {"SGD": 0.01, "ScheduleFreeAdamW": 0.0025}
_DEFAULT_DECAYS = {"AdamW": 0.004, "Muon": 0.004}

_ALTERNATIVES = {
    "MultiOptimizer": "give one optimizer, or a model of your own whose train_step uses several",
    "LossScaleOptimizer": "give its inner optimizer; for mixed precision use mixed_bfloat16",
    "loss_scale_factor": "leave it out; for mixed precision use mixed_bfloat16, which needs none",
    "gradient_accumulation_steps": "use --update sync with --grads-to-wait, which does the same",
}


@dataclass(frozen=True, slots=True)
class Ema:
    """An average ``a = momentum a + (1 - momentum) w`` of the values, kept next to them.

    It takes the place of the values after every ``overwrite_frequency`` updates; with None, only
    when training ends.
    """

    momentum: float
    overwrite_frequency: int | None


@dataclass(frozen=True, slots=True)
class _SharedOptions:
    """The options that every Keras optimizer has, with their defaults."""

    learning_rate: Any = None
    weight_decay: float | None = None
    clipnorm: float | None = None
    global_clipnorm: float | None = None
    clipvalue: float | None = None
    use_ema: bool = False
    ema_momentum: float = 0.99
    ema_overwrite_frequency: int | None = None
    loss_scale_factor: float | None = None
    gradient_accumulation_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Optimizer:
    """How a gradient changes values; immutable, its state is in an ``Updater``.

    One update does, in this order: clip the gradient, take ``weight_decay lr w`` away from each
    value ``w``, apply the rule, move the average.

    Attributes:
        name: the Keras class.
        config: the configuration as it was given.
        undecayed: names of the variables that ``weight_decay`` leaves alone.
        others: optimizers of some variables, such as those of a GAN's generator; this one has all
            that none of them names.
    """

    name: str
    config: Mapping[str, Any] = field(repr=False)
    rule: Rule
    learning_rate: Schedule
    clipping: Clipping
    weight_decay: float
    undecayed: frozenset[str]
    ema: Ema | None
    others: tuple[ParameterGroup, ...] = ()

    @property
    def each(self) -> tuple[Optimizer, ...]:
        """This optimizer, and those of ``others``."""
        return (self, *(other.optimizer for other in self.others))

    @property
    def keeps_average(self) -> bool:
        """Whether any of them keeps an average of values."""
        return any(one.ema is not None for one in self.each)

    @property
    def needs_whole_variables(self) -> bool:
        """Whether no variable of some optimizer may be cut."""
        return any(isinstance(one.rule, WholeVariableRule) for one in self.each)

    @property
    def row_slots(self) -> tuple[float, ...]:
        """The initial number of each slot of an embedding table's rows."""
        if isinstance(self.rule, WholeVariableRule):
            return ()
        return tuple(slot.initial for slot in self.rule.slots() if slot.used)

    def shares(self, layout: Layout) -> Iterator[tuple[Optimizer, frozenset[str]]]:
        """Yield this one and each of ``others`` with the names of its variables."""
        taken = frozenset[str]().union(*(other.variables for other in self.others))
        yield self, frozenset(v.name for v in layout.variables) - taken
        yield from ((other.optimizer, other.variables) for other in self.others)

    def rate_at(self, iteration: int, given: float | None) -> np.float32:
        """Return the learning rate of an update: the given one, or that of the schedule."""
        return self.learning_rate(iteration) if given is None else np.float32(given)


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """An optimizer that has some of the variables.

    Attributes:
        optimizer: has no ``others`` itself.
        variables: their names.
    """

    optimizer: Optimizer
    variables: frozenset[str]


def find_no_rule(name: str) -> None:
    """Return None: no further rules are wanted."""
    del name


def parse_optimizer(serialized: Mapping[str, Any], find_rule: FindRule = find_no_rule) -> Optimizer:
    """Read an optimizer as ``keras.optimizers.serialize`` gives it.

    Args:
        serialized: ``class_name`` and ``config``; what ``config`` leaves out has Keras's
            default. ``excluded_from_weight_decay`` next to them may list names of variables, and
            ``others`` further optimizers, each with the names of its ``variables``.
        find_rule: finds rules of classes that are not Keras's, or not supported here.

    Raises:
        OptimizerUnsupported: the class or an option is not supported; the message says which
            and what to use instead.
    """
    name, config, kind = _find_class(serialized, find_rule)
    shared_names = set(_SharedOptions.__dataclass_fields__)
    shared = _SharedOptions(**{k: v for k, v in config.items() if k in shared_names})
    own = {k: v for k, v in config.items() if k not in shared_names}
    rule: Rule = kind(**read_fields(name, kind, own))
    for option in ("loss_scale_factor", "gradient_accumulation_steps"):
        if value := getattr(shared, option):
            raise OptimizerUnsupported(f"{name}.{option}", str(value), _ALTERNATIVES[option])
    rate = shared.learning_rate
    decay = config.get("weight_decay", _DEFAULT_DECAYS.get(name))
    return Optimizer(
        name=name,
        config=dict(serialized),
        rule=rule,
        learning_rate=parse_learning_rate(
            _DEFAULT_RATES.get(name, 0.001) if rate is None else rate
        ),
        clipping=_clipping(name, shared),
        weight_decay=float(decay or 0.0),
        undecayed=frozenset(serialized.get(EXCLUDED_FROM_DECAY) or ()),
        ema=_ema(shared),
        others=tuple(
            ParameterGroup(parse_optimizer(other, find_rule), frozenset(other["variables"]))
            for other in serialized.get(OTHERS) or ()
        ),
    )


def _find_class(
    serialized: Mapping[str, Any], find_rule: FindRule
) -> tuple[str, dict[str, Any], type[Any]]:
    """Return the name of a class of optimizers, its configuration and its rule."""
    given = serialized.get("class_name")
    remedy = f"use one of {', '.join(RULES)}, or install a package with a rule for it"
    if isinstance(given, str):
        remedy = _ALTERNATIVES.get(given, remedy)
    name, config, is_keras = unwrap(serialized, "optimizer", "keras.optimizers", remedy)
    kind = RULES.get(name) if is_keras else None
    kind = kind or find_rule(name)
    if kind is None and is_keras:
        raise OptimizerUnsupported("class", name, remedy)
    if kind is None:
        raise foreign_class(serialized, "optimizer", remedy)
    return name, config, kind


def _clipping(name: str, options: _SharedOptions) -> Clipping:
    found: list[Clipping] = []
    for kind, limit in (
        (ClipNorm, options.clipnorm),
        (ClipGlobalNorm, options.global_clipnorm),
        (ClipValue, options.clipvalue),
    ):
        if limit is not None and limit > 0:
            found.append(kind(float(limit)))
    if len(found) > 1:
        raise OptimizerUnsupported(
            f"{name}.clipping", ", ".join(map(str, found)), "set only one of the three"
        )
    return found[0] if found else None


def _ema(options: _SharedOptions) -> Ema | None:
    if not options.use_ema:
        return None
    return Ema(float(options.ema_momentum), options.ema_overwrite_frequency or None)
