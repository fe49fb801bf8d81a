"""Training and evaluation steps that a model defines itself, as ``fit`` would call them.

A ``train_step`` ends with an optimizer that updates variables. Here the step is run, but its
optimizers only note gradients and variables: the gradients are pushed, and the master updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from edl_worker.engines.tensorflow.internals import built_variables
from edl_worker.model_file.errors import type_with_article
from edl_worker.model_file.zoo import compatibility

_TRAINING = ("train_step", "compute_loss")
_EVALUATION = ("test_step", "compute_loss", "compute_metrics", "get_metrics_result")


def overrides(model: keras.Model, name: str) -> bool:
    """Whether a model has a method of its own in the place of Keras's."""
    return name in vars(model) or getattr(type(model), name) is not getattr(keras.Model, name)


def has_custom_train_step(model: keras.Model) -> bool:
    """Whether the model defines how it is trained."""
    return any(overrides(model, name) for name in _TRAINING)


def has_custom_test_step(model: keras.Model) -> bool:
    """Whether the model defines how it is evaluated."""
    return any(overrides(model, name) for name in _EVALUATION)


def has_custom_predict_step(model: keras.Model) -> bool:
    """Whether the model defines how it predicts."""
    return overrides(model, "predict_step")


def compile_for_steps(model: keras.Model, arguments: Mapping[str, Any]) -> None:
    """Give a model's own steps what ``compile`` gives them, unless the model file did.

    Raises:
        StepError: the model's ``compile`` takes other arguments.
    """
    if model.compiled:
        return
    try:
        model.compile(**arguments)
    except TypeError as error:
        raise StepError(
            f"does not take {', '.join(arguments)}: {error}",
            "Call model.compile(...) in the model file, with the arguments that it takes.",
        ) from error


class StepError(Exception):
    """A step does something that cannot be distributed.

    Attributes:
        what: continues the name of the step.
        remedy: what to do.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


@dataclass(slots=True)
class _Update:
    """A call of an optimizer's ``apply``."""

    optimizer: keras.optimizers.Optimizer
    gradients: Sequence[Any]
    variables: Sequence[keras.Variable]


@dataclass(frozen=True, slots=True)
class FurtherOptimizer:
    """An optimizer of a step in addition to its first.

    Attributes:
        variables: paths of those that it updates.
    """

    optimizer: keras.optimizers.Optimizer
    variables: frozenset[str]


class CustomTrainStep:
    """The ``train_step`` of a model.

    Args:
        model: the model; compiled.

    Attributes:
        model: the same.
        optimizer: of the updates that the step makes; final after ``gradients``. If there are
            several, the one that the model is compiled with, or else the first.
        others: the other ones, each with its variables; likewise.
        untrained: paths of trainable variables that the step never updates.
        updates: the calls of each optimizer's ``apply``, with the variables; likewise.
    """

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self.optimizer = next(iter(self.optimizers), None)
        self.others: tuple[FurtherOptimizer, ...] = ()
        self.untrained: frozenset[str] = frozenset()
        self.updates: tuple[tuple[keras.optimizers.Optimizer, Sequence[keras.Variable]], ...] = ()

    def gradients(
        self, features: Any, labels: Any, weights: Any, variables: Sequence[keras.Variable]
    ) -> tuple[Any, list[Any]]:
        """Return the loss of a minibatch and the gradient of each variable; nothing is updated.

        It is to be traced. A gradient is None if the step has none for the variable.

        Args:
            variables: the model's trainable variables.

        Raises:
            StepError: the step cannot be distributed.
        """
        with _record_updates(variables) as updates:
            logs = self._run(features, labels, weights)
        found: dict[int, Any] = {}
        known = {id(variable) for variable in variables}
        for update in updates:
            for gradient, variable in zip(update.gradients, update.variables, strict=True):
                if id(variable) not in known:
                    raise StepError(
                        f"updates {variable.path}, which is no trainable variable of the model",
                        "Keep the layer that has it as an attribute of the model.",
                    )
                if id(variable) in found:
                    raise StepError(
                        f"updates {variable.path} twice for one minibatch",
                        "Update each variable once, or train with --local-steps 2 or more: "
                        "then workers run the step as it is.",
                    )
                found[id(variable)] = gradient
        self.optimizer, self.others = self._by_optimizer(updates)
        self.updates = tuple((update.optimizer, update.variables) for update in updates)
        self.untrained = frozenset(v.path for v in variables if id(v) not in found)
        return loss_of(logs), [found.get(id(v)) for v in variables]

    @property
    def optimizers(self) -> list[keras.optimizers.Optimizer]:
        """The optimizers of the model."""
        found = (self.model.optimizer, *vars(self.model).values())
        kind = keras.optimizers.Optimizer
        return list({id(each): each for each in found if isinstance(each, kind)}.values())

    def run(self, features: Any, labels: Any, weights: Any) -> Any:
        """Run the step as it is, updates included, and return the loss; this is to be traced."""
        return loss_of(self._run(features, labels, weights))

    def _by_optimizer(
        self, updates: Sequence[_Update]
    ) -> tuple[keras.optimizers.Optimizer, tuple[FurtherOptimizer, ...]]:
        """Return the first optimizer, and the others with what they update.

        Optimizers that are alike are one, unless they clip the norm of all that they update.

        Raises:
            StepError: no optimizer gets a gradient.
        """
        if not any(gradient is not None for update in updates for gradient in update.gradients):
            if updates:
                raise StepError(
                    "computes no gradient: within its tape, the loss depends on no variable",
                    "Call the model and compute the loss within `with tf.GradientTape() as tape:`, "
                    "with operations that have gradients (tf.argmax, tf.round, comparisons and "
                    ".numpy() have none).",
                )
            raise StepError(
                "uses no optimizer", "End it with self.optimizer.apply(gradients, variables)."
            )
        groups: dict[str, tuple[keras.optimizers.Optimizer, set[str]]] = {}
        own = self.model.optimizer
        for update in sorted(updates, key=lambda update: update.optimizer is not own):
            _, paths = groups.setdefault(_kind(update.optimizer), (update.optimizer, set()))
            paths.update(variable.path for variable in update.variables)
        (first, _), *others = groups.values()
        return first, tuple(FurtherOptimizer(one, frozenset(paths)) for one, paths in others)

    def _run(self, features: Any, labels: Any, weights: Any) -> Any:
        for metric in self.model.metrics:
            metric.reset_state()  # what the step returns is about this minibatch
        return unwrap_step(self.model, "train_step")(pack_minibatch(features, labels, weights))


def pack_minibatch(features: Any, labels: Any, weights: Any) -> Any:
    """Pack a minibatch as ``fit`` passes it to a step and as the dataset function yields it."""
    if labels is None:
        return features
    return (features, labels) if weights is None else (features, labels, weights)


def unwrap_step(model: keras.Model, name: str) -> Callable[[Any], Any]:
    """Return a step of the model without its ``tf.function``, which would hide gradients."""
    if name in vars(model):
        own: Any = vars(model)[name]
        step = getattr(own, "python_function", own)
    else:
        method = getattr(type(model), name)
        step = partial(getattr(method, "python_function", method), model)

    def call(data: Any) -> Any:
        with compatibility.provide_removed_names():
            return step(data)

    return call


def loss_of(logs: Any) -> Any:
    """Return the loss that a step returns: ``loss``, or the sum of what is called a loss."""
    if not isinstance(logs, Mapping):
        raise StepError(f"returns {type_with_article(logs)}", 'Return a dictionary: {"loss": ...}.')
    losses = [logs["loss"]] if "loss" in logs else [v for k, v in logs.items() if "loss" in k]
    if not losses:
        raise StepError("returns no loss", 'Return {"loss": ...}, which edl shows and checks.')
    return tf.add_n([tf.reduce_mean(tf.cast(value, tf.float32)) for value in losses])


@contextmanager
def _record_updates(variables: Sequence[keras.Variable]) -> Iterator[list[_Update]]:
    """Record what optimizers are given, and refuse assignments to trainable variables."""
    updates: list[_Update] = []

    def apply(optimizer: Any, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        if trainable_variables is None:
            trainable_variables = built_variables(optimizer)
        updates.append(_Update(optimizer, list(grads), list(trainable_variables)))

    paths = {id(variable.value): variable.path for variable in variables}

    def guard(method: Callable[..., Any]) -> Callable[..., Any]:
        def assign(self: Any, *args: Any, **kwargs: Any) -> Any:
            if id(self) in paths:
                raise StepError(
                    f"assigns {paths[id(self)]}, a trainable variable, which only updates may "
                    "change",
                    "Set trainable=False on the layer that has it, or leave the assignment out.",
                )
            return method(self, *args, **kwargs)

        return assign

    with ExitStack() as replaced:
        replaced.enter_context(_replace_method(keras.optimizers.Optimizer, "apply", apply))
        owner = type(variables[0].value)
        for name in ("assign", "assign_add", "assign_sub"):
            replaced.enter_context(_replace_method(owner, name, guard(getattr(owner, name))))
        yield updates


@contextmanager
def _replace_method(owner: type, name: str, method: Callable[..., Any]) -> Iterator[None]:
    own = vars(owner).get(name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)  # it was inherited
        else:
            setattr(owner, name, own)


def _kind(optimizer: keras.optimizers.Optimizer) -> str:
    """Return a text that is equal for optimizers that can be combined into one."""
    with tf.init_scope():  # the values of the options can be read out there
        config = keras.optimizers.serialize(optimizer)["config"]
    alone = id(optimizer) if optimizer.global_clipnorm else None
    return str({**config, "name": type(optimizer), "alone": alone})
