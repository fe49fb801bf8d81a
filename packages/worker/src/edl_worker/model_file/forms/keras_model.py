"""Keras models: an instance, or a class of which edl creates one."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from edl_worker.model_file.arguments import Definition, Role
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.forms.model_definition import (
    ModelDefinition,
    class_definitions,
    keras_3_model,
)
from edl_worker.model_file.framework_types import is_model_class
from edl_worker.model_file.source_lines import find_line
from edl_worker.model_file.zoo.compatibility import is_of_keras_2

_MEMBER_NAMES: dict[Role, tuple[str, ...]] = {
    "input": ("default_input", "default_input_fn", "default_dataset_fn"),
    "loss": ("default_loss",),
    "optimizer": ("default_optimizer",),
    "eval_metrics_fn": ("default_metrics", "default_eval_metrics_fn"),
    "feature_columns": ("default_feature_columns",),
    "label_columns": ("default_label_columns",),
}


class ModelInstance(ModelDefinition):
    """``model = keras.Model(...)``."""

    form = "instance"

    @staticmethod
    def accepts(value: Any) -> bool:
        return is_model_class(type(value)) or _is_keras_2_model(type(value))

    def is_candidate(self) -> bool:
        return True

    @property
    def place(self) -> str:
        file = self.module.__file__ or ""
        line = find_line(file, self.name)
        return f"{file}:{line}, {self.name}" if line else f"{file}, {self.name}"

    @property
    def code(self) -> Any:
        return type(self.value)

    def modules(self) -> list[ModuleType]:
        return [self.module]

    def constructors(self) -> list[Definition]:
        return []

    def create_model(self, caller: DefinitionCaller) -> Any:
        definition = Definition("model", self.name, self.value, file=self.module.__file__ or "")
        model = keras_3_model(definition, self.value)
        caller.owner = model
        return model

    def _own_definitions(self) -> dict[Role, Definition]:
        return class_definitions(type(self.value), _MEMBER_NAMES)


class ModelClass(ModelDefinition):
    """``class Digits(keras.Model)``, with defaults such as ``default_loss``."""

    form = "class"

    @staticmethod
    def accepts(value: Any) -> bool:
        return inspect.isclass(value) and (is_model_class(value) or _is_keras_2_model(value))

    def is_candidate(self) -> bool:
        return self._is_of_module() and not inspect.isabstract(self.value)

    def constructors(self) -> list[Definition]:
        return [Definition("model", self.name, self.value)]

    def _own_definitions(self) -> dict[Role, Definition]:
        return class_definitions(self.value, _MEMBER_NAMES)


def _is_keras_2_model(kind: type) -> bool:
    return is_of_keras_2(kind) and any(base.__name__ == "Model" for base in kind.__mro__)
