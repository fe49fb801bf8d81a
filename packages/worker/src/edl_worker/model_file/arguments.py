"""Definitions of a model file and their arguments, which go by parameter name.

``loss(labels, predictions)`` and ``loss(output, labels)`` mean the same to edl, and so do
``dataset_fn(dataset, mode)`` and ``input_fn(records)``: the names of the parameters decide.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.errors import convert_exits, place_of
from edl_worker.model_file.framework_types import derives_from
from edl_worker.model_file.source_lines import find_line

Role = Literal[
    "model",
    "spec",
    "input",
    "loss",
    "optimizer",
    "eval_metrics_fn",
    "metric",
    "weighted_metrics",
    "loss_weights",
    "class_weight",
    "callbacks",
    "feature_columns",
    "label_columns",
    "learning_rate_scheduler",
    "outputs_processor",
    "custom_data_reader",
]

# The arguments that edl can pass, and the parameter names that model files use for them.
PARAMETER_NAMES: dict[str, frozenset[str]] = {
    "labels": frozenset(
        ("labels", "label", "y_true", "targets", "target", "true_labels", "y", "truth")
    ),
    "outputs": frozenset(
        ("outputs", "output", "predictions", "prediction", "preds", "pred", "y_pred", "logits")
    ),
    "dataset": frozenset(("dataset", "ds")),
    "records": frozenset(("records", "rows", "examples", "record_list")),
    "mode": frozenset(("mode",)),
    "metadata": frozenset(("metadata", "_metadata", "_")),
    "context": frozenset(("context",)),
}

# The arguments that edl passes to each role; --params cannot set them.
_PASSED_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "input": ("dataset", "records", "mode", "metadata"),
    "loss": ("labels", "outputs"),
    "eval_metrics_fn": ("labels", "outputs", "mode"),
    "metric": ("labels", "outputs"),
    "model": ("context",),
    "spec": ("context",),
}

# Roles whose definitions get nothing else than what edl passes.
_WITHOUT_PARAMS: frozenset[Role] = frozenset(("learning_rate_scheduler", "custom_data_reader"))

# The words of the documentation where they differ from the argument's name.
_DOCUMENTED_NAMES = {"outputs": "predictions"}


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition of a model file, as it was found.

    Attributes:
        role: what the definition is for.
        name: the name that a person knows it by: ``loss`` or ``DNN.default_loss``.
        value: a function, a class, or the object itself.
        needs_self: ``value`` is a plain method whose first parameter is the model or the spec.
        file: the file that has it, for an object that does not know its place, such as a text.
    """

    role: Role
    name: str
    value: Any
    needs_self: bool = False
    file: str = ""

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def place(self) -> str:
        # A loss of Keras can be called; its class is not what the user wrote.
        is_of_keras = str(getattr(self.value, "__module__", "")).startswith(("keras.", "tf_keras."))
        if self.file and (is_of_keras or not callable(self.value)):
            line = find_line(self.file, self.short_name)
            if not line:
                return f"{self.file}, {self.short_name}"
            return f"{self.file}:{line}, {self.short_name}"
        return place_of(self.value, self.short_name)

    @property
    def signature(self) -> str:
        if not callable(self.value):
            return self.name
        names = [str(p).partition(":")[0].partition("=")[0] for p in self.parameters().values()]
        return f"{self.name}({', '.join(names)})"

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return the parameters of the definition; empty if it has no readable signature."""
        if not callable(self.value):
            return {}
        try:
            parameters = _find_parameters(self.value)
        except (TypeError, ValueError):
            return {}
        if self.needs_self:
            parameters.pop(next(iter(parameters)))
        return parameters

    def settable_names(self) -> list[str]:
        """Return the names of the parameters that ``--params`` may set."""
        # A ready loss of Keras is called as Keras does it: sample_weight is none of the user's.
        if self.role in _WITHOUT_PARAMS or derives_from(type(self.value), "keras", "Loss"):
            return []
        passed = {
            name
            for which in _PASSED_ARGUMENTS.get(self.role, ())
            for name in PARAMETER_NAMES[which]
        }
        return [
            name
            for name, parameter in self.parameters().items()
            if name not in passed and _goes_by_name(parameter)
        ]

    def has_var_keywords(self) -> bool:
        """Whether the definition takes ``**kwargs``."""
        return any(p.kind is p.VAR_KEYWORD for p in self.parameters().values())

    def required_names(self) -> list[str]:
        """Return the names of the parameters without a default."""
        return [
            name
            for name, parameter in self.parameters().items()
            if parameter.default is parameter.empty and _goes_by_name(parameter)
        ]

    def error(self, what: str, remedy: str) -> EdlError:
        """Return a MODEL_CONTRACT error; ``what`` continues the definition's signature."""
        return EdlError(
            ErrorCode.MODEL_CONTRACT, f"{self.signature} {what}", where=self.place, remedy=remedy
        )


def _find_parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a call; of a class, those of its nearest constructor.

    Until Python 3.11.3, ``inspect`` preferred the ``__new__`` of keras.Model to the ``__init__`` of
    a class in between.

    Raises:
        TypeError, ValueError: they cannot be read.
    """
    if inspect.isclass(function):
        owner = next(one for one in function.__mro__ if {"__init__", "__new__"} & vars(one).keys())
        if owner is not function and "__new__" not in vars(owner):
            _, *parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
            return {one.name: one for one in parameters}
    return dict(inspect.signature(function).parameters)


def _goes_by_name(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A function of the model file together with the arguments that each parameter gets.

    Attributes:
        definition: where the function comes from.
        arguments: parameter name to argument name: ``{"y_true": "labels"}``.
        constants: parameter name to a value of ``--params``.
    """

    definition: Definition
    function: Callable[..., Any]
    arguments: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, **given: Any) -> Any:
        """Call the function; arguments in ``given`` that no parameter wants are left out."""
        arguments = {
            name: given[argument] for name, argument in self.arguments.items() if argument in given
        }
        with convert_exits():
            return self.function(**arguments, **self.constants)


def bind(
    definition: Definition,
    function: Callable[..., Any],
    *,
    required: tuple[str, ...],
    optional: tuple[str, ...] = (),
    params: Mapping[str, Any],
    by_position: bool = False,
) -> BoundFunction:
    """Match the parameters of a function with arguments and with ``--params``.

    Args:
        function: ``definition.value``, or its bound method.
        required: arguments that the function must take.
        optional: further arguments that it may take.
        by_position: parameters with other names get the remaining arguments in order. Otherwise
            only one remaining parameter is matched with one remaining argument.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    parameters = definition.parameters()
    _refuse_positional_only(definition, parameters, required)
    settable, needed = definition.settable_names(), definition.required_names()
    arguments: dict[str, str] = {}
    constants: dict[str, Any] = {}
    unknown: list[str] = []
    for name in parameters:
        argument = _argument_named(name, (*required, *optional))
        if argument is not None:
            arguments[name] = argument
        elif name in settable and name in params:
            constants[name] = params[name]
        elif name in needed:
            unknown.append(name)
    arguments.update(
        _match_unknown(
            unknown,
            remaining=[a for a in required if a not in arguments.values()],
            in_order=[
                a for a in (*required, *optional) if a not in arguments.values() and a != "metadata"
            ]
            if by_position
            else [],
        )
    )
    missing = [a for a in required if a not in arguments.values()]
    if missing:
        names = " and no ".join(_DOCUMENTED_NAMES.get(argument, argument) for argument in missing)
        raise _cannot_call(definition, required, f"it takes no {names}")
    unmatched = [name for name in unknown if name not in arguments]
    if unmatched:
        raise _cannot_call(definition, required, f"edl has no value for {', '.join(unmatched)}")
    return BoundFunction(definition, function, arguments, constants)


def _refuse_positional_only(
    definition: Definition, parameters: Mapping[str, inspect.Parameter], required: tuple[str, ...]
) -> None:
    names = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
    if names:
        raise _cannot_call(definition, required, f"{', '.join(names)} cannot be passed by name")


def _argument_named(name: str, arguments: Iterable[str]) -> str | None:
    return next((argument for argument in arguments if name in PARAMETER_NAMES[argument]), None)


def _match_unknown(
    unknown: list[str], *, remaining: list[str], in_order: list[str]
) -> dict[str, str]:
    """Return arguments for parameters whose names say nothing."""
    if in_order:
        return dict(zip(unknown, in_order, strict=False))
    if len(remaining) == 1 and len(unknown) == 1:
        return {unknown[0]: remaining[0]}
    return {}


def _cannot_call(definition: Definition, required: tuple[str, ...], why: str) -> EdlError:
    names = ", ".join(_DOCUMENTED_NAMES.get(argument, argument) for argument in required)
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"{definition.signature} cannot be called: {why}",
        where=definition.place,
        remedy=f"Write it as {definition.short_name}({names}). Arguments go by name; any other "
        "parameter needs a default or a value in --params.",
    )
