"""Calls what a model file offers at load time: constructors, ``optimizer()``, columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.errors import ErrorCollector, blame
from edl_worker.model_file.params import unknown_parameter
from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.importer import ModelZoo
from edl_worker.model_file.zoo.resolver import ModelDefinition


class _Failed:
    """What ``DefinitionCaller.call`` returns when a part could not be called."""


FAILED = _Failed()


@dataclass
class DefinitionCaller:
    """What is at hand while a model file is put together.

    Attributes:
        params: the values of ``--params``.
        owner: the model or the spec whose methods some parts are; None before it exists.
        takers: who takes which parameters.
    """

    zoo: ModelZoo
    found: ModelDefinition
    params: Mapping[str, Any]
    context: Mapping[str, Any] | None
    findings: ErrorCollector = field(default_factory=ErrorCollector)
    owner: Any = None
    takers: dict[str, list[str]] = field(default_factory=dict)

    def function(self, part: Definition) -> Callable[..., Any]:
        """The part's function; a method is bound to its owner."""
        if isinstance(part.value, property):
            return lambda: part.value.fget(self.owner)
        if part.drops_self and self.owner is not None:
            bound: Callable[..., Any] = part.value.__get__(self.owner)
            return bound
        value: Callable[..., Any] = part.value
        return value

    def call(self, part: Definition, rest: Mapping[str, Any] | None = None) -> Any:
        """Calls a part with the parameters that it names.

        Returns FAILED when it could not be called, which the findings tell.

        Args:
            rest: further parameters, for its ``**kwargs``.
        """
        if part.drops_self and self.owner is None:
            return FAILED  # its constructor has failed, and that is told
        arguments = {name: self.params[name] for name in part.takes() if name in self.params}
        if "context" in part.parameters():
            arguments["context"] = self.context
        lacking = [name for name in part.required() if name not in arguments]
        if lacking:
            names = ", ".join(f"{name}=..." for name in lacking)
            self.refuse(
                part,
                f"needs {', '.join(lacking)}",
                f'Give --params="{names}", or a default in the file.',
            )
            return FAILED
        try:
            with compatibility.served():
                return self.function(part)(**arguments, **(rest or {}))
        except Exception as error:
            refused = [name for name in rest or () if name in str(error)]
            if refused:
                self.findings.add(unknown_parameter(refused[0], self.takers))
            else:
                self.findings.add_raised(self.raised(part, error))
            return FAILED

    def raised(self, part: Definition, error: Exception) -> EdlError:
        return blame(
            error,
            self.zoo.root,
            code=error_pb2.MODEL_CONTRACT,
            doing=f"{part.signature} raised",
            fallback=part.where,
            remedy="Mend it, or give other --params; the detail shows its own frames.",
        )

    def refuse(self, part: Definition, what: str, remedy: str) -> None:
        self.findings.add(
            EdlError(
                error_pb2.MODEL_CONTRACT,
                f"{part.signature} {what}",
                where=part.where,
                remedy=remedy,
            )
        )


def constructors(found: ModelDefinition) -> list[Definition]:
    """What makes the model, in order, as parts that take parameters; nothing for an instance."""
    match found.form:
        case "class" | "function":
            return [Definition("model", found.name, found.value)]
        case "spec":
            create = inspect.getattr_static(found.value, "create_model")
            return [
                Definition("spec", found.name, found.value),
                Definition("model", f"{found.name}.create_model", create, drops_self=True),
            ]
        case "instance":
            return []


def check_params(
    bench: DefinitionCaller, makers: Sequence[Definition], others: Sequence[Definition]
) -> None:
    """Adds an error for each parameter that nothing takes."""
    bench.takers = {part.signature: part.takes() for part in (*makers, *others)}
    if any(part.takes_any() for part in makers):
        return  # a constructor's **kwargs get what nobody names; it may still refuse
    named = {name for names in bench.takers.values() for name in names}
    for name in bench.params:
        if name not in named:
            bench.findings.add(unknown_parameter(name, bench.takers))


def create_model(
    bench: DefinitionCaller, makers: Sequence[Definition], others: Sequence[Definition]
) -> keras.Model | None:
    """The model; None when it could not be made, and the findings say why."""
    if not makers:
        bench.owner = bench.found.value
        model: keras.Model = bench.found.value
        return model
    named = {name for part in (*makers, *others) for name in part.takes()}
    made: Any = None
    for part in makers:
        abstract = sorted(getattr(part.value, "__abstractmethods__", ()))
        if inspect.isclass(part.value) and abstract:
            names = ", ".join(abstract)
            bench.refuse(part, f"does not define {names}", f"Add {names} to the class.")
            return None
        rest = {n: v for n, v in bench.params.items() if n not in named}
        made = bench.call(part, rest if part.takes_any() else None)
        if made is FAILED:
            return None
        bench.owner = bench.owner if bench.owner is not None else made
    if isinstance(made, keras.Model):
        return made
    bench.refuse(
        makers[-1],
        f"returned a {type(made).__name__}, not a Keras model",
        "Return a keras.Model; Keras 3 comes with TensorFlow as tf.keras.",
    )
    return None
