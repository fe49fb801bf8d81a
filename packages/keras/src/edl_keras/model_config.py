"""Describes a Keras model so that another process can make it: all but its weights."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import keras

from edl.plugins.errors import Problem
from edl_keras.definition_source import Defined
from edl_keras.errors import wrong_model

_PARTS = (
    keras.layers.Layer,
    keras.losses.Loss,
    keras.metrics.Metric,
    keras.optimizers.Optimizer,
    keras.optimizers.schedules.LearningRateSchedule,
    keras.initializers.Initializer,
    keras.regularizers.Regularizer,
    keras.constraints.Constraint,
)
"""The classes of Keras whose objects a model is made of."""

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelCopy:
    """A description of a model that makes it again, without its weights.

    Attributes:
        config: of the model, as Keras describes it; or the name of its ``class`` and the
            ``arguments`` of the constructor, if the class has no ``get_config``.
        compiled: the arguments of ``compile``, as Keras describes them.
        objects: the user's classes and functions, by the names that Keras has for them.
    """

    config: Config
    compiled: Config
    objects: Mapping[str, Defined]

    def make(self) -> keras.Model:
        """Return a new model, which is not compiled."""
        config = deepcopy(self.config)  # Keras takes it apart
        with keras.saving.custom_object_scope(dict(self.objects)):
            if "arguments" not in config:
                return keras.saving.deserialize_keras_object(config)
            arguments = keras.saving.deserialize_keras_object(config["arguments"])
            return self.objects[self.config["class"]](**arguments)


def describe_model(model: keras.Model) -> ModelCopy:
    """Return what makes a model again.

    Raises:
        Problem: Keras cannot describe the model, or an object is not found.
    """
    _check_compile(model)
    found = list(_walk(model))
    with _named_lambdas(found) as lambdas, _with_vocabularies(model):
        try:
            compiled = model.get_compile_config()
            config = _describe_class(model) or keras.saving.serialize_keras_object(model)
            json.dumps([config, compiled])
        except Problem:
            raise
        except Exception as error:  # Keras raises what it likes, and so do classes of users
            lines = str(error).strip().splitlines()
            raise wrong_model(
                f"Keras cannot describe the model {model.name}: {lines[0] if lines else error!r}",
                "Let each class have get_config, which returns the arguments of its constructor.",
            ) from error
        known = {**lambdas, **_definitions(found)}
        functions = {name for name, each in known.items() if not isinstance(each, type)}
        objects = {
            name: _find(name, module, known)
            for name, module in sorted({*_names(config, functions), *_names(compiled, functions)})
        }
    if "arguments" in config:
        objects[config["class"]] = type(model)
    config.pop("compile_config", None)
    return ModelCopy(config, compiled, objects)


def check_copy(model: keras.Model, description: ModelCopy, x: Any) -> None:
    """Check that a model that is made again has the same variables.

    Args:
        x: a row of the data, by which a model is built; None if it is not known.

    Raises:
        Problem: the configuration does not say all about the model.
    """
    where = type(model).__name__
    remedy = (
        f"Add get_config to {where}, which returns the arguments of its constructor, or keep each"
        " argument in an attribute of its name."
    )
    try:
        copy = description.make()
        if not copy.built and has_call(copy):
            if x is None:
                return
            copy(x)
    except Exception as error:  # constructors of users raise what they like
        lines = str(error).strip().splitlines()
        what = f"the model cannot be made again: {lines[0] if lines else error!r}"
        raise wrong_model(what, remedy, where=where) from error
    mine, others = ([tuple(each.shape) for each in it.weights] for it in (model, copy))
    if mine != others:
        what = f"{where} has other weights when it is made again from what Keras knows about it"
        raise wrong_model(what, remedy, where=where)


def has_call(model: keras.Model) -> bool:
    """Return whether a model can be called; one with steps of its own may only call its parts."""
    return type(model).call is not keras.Model.call


def _describe_class(model: keras.Model) -> Config | None:
    """Return the class and the arguments of a model whose class says nothing about them.

    Keras only knows the defaults of such a model. Arguments usually are attributes, too.
    """
    kind = type(model)
    if kind.get_config is not keras.Model.get_config or _is_of_keras(kind):
        return None
    attributes = {name.lstrip("_"): value for name, value in vars(model).items()}
    arguments = {}
    for name, each in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if name == "name" or each.kind is each.VAR_KEYWORD:
            arguments["name"] = model.name
        elif name in attributes and name not in ("dtype", "trainable"):
            arguments[name] = attributes[name]
        elif each.default is each.empty:
            raise wrong_model(
                f"nothing says what the argument {name} of {kind.__name__} was",
                f"Write self.{name} = {name} in its constructor, or add get_config to the class.",
                where=kind.__name__,
            )
    return {
        "class": keras.saving.get_registered_name(kind),
        "arguments": keras.saving.serialize_keras_object(arguments),
    }


def _check_compile(model: keras.Model) -> None:
    kind = type(model)
    if (
        kind.compile is not keras.Model.compile
        and kind.compile_from_config is keras.Model.compile_from_config
    ):
        raise wrong_model(
            f"{kind.__name__} has a compile of its own, whose arguments Keras does not keep",
            "Add get_compile_config and compile_from_config to the class, as Keras describes them,"
            " or train a model file: elasticdl.train.",
            where=f"{kind.__name__}.compile",
        )


def _walk(model: keras.Model) -> Iterator[Any]:
    """Yield the objects, classes and functions that a model is made of, each once."""
    seen: set[int] = set()
    waiting: list[Any] = [model]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple | set):
            waiting += value
        elif isinstance(value, (*_PARTS, type, FunctionType)) and id(value) not in seen:
            seen.add(id(value))
            yield value
            if isinstance(value, _PARTS):
                waiting += vars(value).values()


def _definitions(found: Sequence[Any]) -> dict[str, Defined]:
    """Return the classes and functions by the names that Keras has for them."""
    definitions = [each if isinstance(each, type | FunctionType) else type(each) for each in found]
    return {
        keras.saving.get_registered_name(each): each
        for each in definitions
        if not _is_of_keras(each)
    }


@contextmanager
def _named_lambdas(found: Sequence[Any]) -> Iterator[dict[str, Defined]]:
    """Give lambda expressions names meanwhile: Keras would write their compiled code."""
    lambdas = [each for each in found if getattr(each, "__name__", "") == "<lambda>"]
    named: dict[str, Defined] = {f"lambda_{at}": each for at, each in enumerate(lambdas, 1)}
    for name, each in named.items():
        each.__name__ = name
    try:
        yield named
    finally:
        for each in named.values():
            each.__name__ = "<lambda>"


@contextmanager
def _with_vocabularies(model: keras.Model) -> Iterator[None]:
    """Let lookup layers that were adapted to data describe their vocabularies meanwhile."""
    changed = []
    for layer in (each for each in _walk(model) if hasattr(each, "get_vocabulary")):
        lookup = getattr(layer, "_lookup_layer", layer)
        if getattr(lookup, "input_vocabulary", True) is None and lookup.vocabulary_size() > 0:
            words = layer.get_vocabulary(include_special_tokens=False)
            lookup.input_vocabulary = [getattr(word, "item", lambda w=word: w)() for word in words]
            changed.append(lookup)
    try:
        yield
    finally:
        for lookup in changed:
            lookup.input_vocabulary = None


def _names(config: Any, functions: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the module of each class and function that is not of Keras itself.

    Args:
        functions: the names of the user's functions; those of Keras look the same.
    """
    if isinstance(config, list | tuple):
        for each in config:
            yield from _names(each, functions)
    if not isinstance(config, dict):
        return
    module, name = config.get("module") or "", config.get("registered_name")
    if config.get("class_name") == "function" and isinstance(config.get("config"), str):
        if config["config"] in functions:
            yield config["config"], module
    elif "class_name" in config and isinstance(name, str) and not module.startswith("keras"):
        yield name, module
    for each in config.values():
        yield from _names(each, functions)


def _is_of_keras(value: Defined) -> bool:
    return value.__module__.partition(".")[0] == "keras"


def _find(name: str, module: str, known: Mapping[str, Defined]) -> Defined:
    short = name.rpartition(">")[2]
    found = known.get(name) or keras.saving.get_custom_objects().get(name)
    if found is None:
        found = getattr(sys.modules.get(module), short, None)
    if not isinstance(found, type | FunctionType):
        raise wrong_model(
            f"the model uses {short}, which is not found in its layers, losses and metrics",
            "Register it: @keras.saving.register_keras_serializable().",
            where=short,
        )
    return found
