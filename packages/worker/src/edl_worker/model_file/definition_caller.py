"""Calls definitions of a model file while it is loaded, with the values of ``--params``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.errors import (
    DefinitionRaised,
    DefinitionUnavailable,
    convert_exits,
    user_code_error,
)
from edl_worker.model_file.hyperparameters import PARAMETER, HyperParameters
from edl_worker.model_file.params import unknown_parameter
from edl_worker.model_file.zoo import compatibility


class DefinitionCaller:
    """A caller of constructors, ``optimizer()``, ``feature_columns()`` and so on.

    Args:
        zoo_root: folder of the model zoo, for the places in error messages.
        params: the values of ``--params``.
        context: for ``ElasticDLSpec(context=...)``.
        definitions: all definitions that ``--params`` may set parameters of.
        observe: a context for the first call of the dataset function.

    Attributes:
        owner: the model or the spec whose methods some definitions are; None until the model
            exists.
        hyperparameters: what a model function with the parameter ``hp`` gets; None if none has it.
    """

    def __init__(
        self,
        zoo_root: Path,
        params: Mapping[str, Any],
        context: Mapping[str, Any] | None,
        definitions: Iterable[Definition],
        observe: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.zoo_root = zoo_root
        self.params = params
        self.owner: Any = None
        self.observe = observe
        self._context = context
        known = list(definitions)
        self._settable = {each.signature: each.settable_names() for each in known}
        self.hyperparameters: HyperParameters | None = None
        self._asked_by_name = self.unclaimed_params()
        if any(map(_asks_for_values, known)):
            given = {**(params.get(PARAMETER) or {}), **self._asked_by_name}
            self.hyperparameters = HyperParameters(given)

    def unclaimed_params(self) -> dict[str, Any]:
        """Return the values of ``--params`` that no definition names as a parameter.

        With ``hp`` there are none: it has whatever its model function asks for.
        """
        if self.hyperparameters is not None:
            return {}
        claimed = {name for names in self._settable.values() for name in names}
        return {name: value for name, value in self.params.items() if name not in claimed}

    def unknown_parameter(self, name: str) -> EdlError:
        """Return the error for a value of ``--params`` that nothing takes."""
        return unknown_parameter(name, self._settable)

    def function(self, definition: Definition) -> Callable[..., Any]:
        """Return the definition's function; a method is bound to its owner."""
        if isinstance(definition.value, property):
            return lambda: definition.value.fget(self.owner)
        if definition.needs_self and self.owner is not None:
            bound: Callable[..., Any] = definition.value.__get__(self.owner)
            return bound
        function: Callable[..., Any] = definition.value
        return function

    def call(self, definition: Definition, extra: Mapping[str, Any] | None = None) -> Any:
        """Call a definition with the values of ``--params`` that it names.

        Args:
            extra: further arguments, for its ``**kwargs``.

        Raises:
            EdlError: a parameter has no value, or ``**kwargs`` or ``hp`` does not accept one.
            DefinitionRaised: the definition raised.
            DefinitionUnavailable: its owner could not be created.
        """
        if definition.needs_self and self.owner is None:
            raise DefinitionUnavailable(definition.name)
        arguments = {
            name: self.params[name] for name in definition.settable_names() if name in self.params
        }
        if "context" in definition.parameters():
            arguments["context"] = self._context
        if _asks_for_values(definition):
            arguments[PARAMETER] = self.hyperparameters
        lacking = [name for name in definition.required_names() if name not in arguments]
        if lacking:
            names = ", ".join(f"{name}=..." for name in lacking)
            raise definition.error(
                f"needs {', '.join(lacking)}",
                f'Give --params="{names}", or write a default in the file.',
            )
        try:
            with compatibility.provide_removed_names(), convert_exits():
                result = self.function(definition)(**arguments, **(extra or {}))
        except Exception as error:
            refused = [name for name in extra or () if name in str(error)]
            if refused:
                raise self.unknown_parameter(refused[0]) from error
            raise self._raised_error(definition, error) from error
        if PARAMETER in arguments and self.hyperparameters is not None:
            self._check_asked(self.hyperparameters.asked)
        return result

    def _check_asked(self, asked: Iterable[str]) -> None:
        """Refuse a value of ``--params`` that a model function has not asked ``hp`` for.

        Values in ``hp={…}`` may be for models that ask for others; these are not checked.
        """
        for name in self._asked_by_name:
            if name not in asked:
                raise unknown_parameter(name, {**self._settable, PARAMETER: asked})

    def _raised_error(self, definition: Definition, error: Exception) -> DefinitionRaised:
        return DefinitionRaised(
            user_code_error(
                error,
                self.zoo_root,
                code=ErrorCode.MODEL_CONTRACT,
                action=f"{definition.signature} raised",
                place=definition.place,
                remedy="Fix it, or give other --params. The detail has a traceback.",
            )
        )


def _asks_for_values(definition: Definition) -> bool:
    """Return whether a definition makes a model from a ``HyperParameters``, as in KerasTuner."""
    return definition.role == "model" and PARAMETER in definition.required_names()
