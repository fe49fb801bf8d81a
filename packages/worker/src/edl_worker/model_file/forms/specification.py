"""Specifications: an ``ElasticDLSpec``, or any other class with ``create_model``."""

from __future__ import annotations

import inspect
from typing import Any

from edl_worker.model_file.arguments import Definition, Role
from edl_worker.model_file.forms.model_definition import ModelDefinition, class_definitions

_MEMBER_NAMES: dict[Role, tuple[str, ...]] = {
    "input": ("create_dataset",),
    "loss": ("create_loss",),
    "optimizer": ("create_optimizer",),
    "eval_metrics_fn": ("create_metrics",),
}


class Specification(ModelDefinition):
    """``class Digits(ElasticDLSpec)``."""

    form = "spec"

    @staticmethod
    def accepts(value: Any) -> bool:
        return inspect.isclass(value) and callable(getattr(value, "create_model", None))

    def is_candidate(self) -> bool:
        # Some model files of the design documents define their own base class ElasticDLSpec.
        return (
            self._is_of_module()
            and not inspect.isabstract(self.value)
            and self.name != "ElasticDLSpec"
        )

    def constructors(self) -> list[Definition]:
        create = inspect.getattr_static(self.value, "create_model")
        return [
            Definition("spec", self.name, self.value),
            Definition("model", f"{self.name}.create_model", create, needs_self=True),
        ]

    def _own_definitions(self) -> dict[Role, Definition]:
        return class_definitions(self.value, _MEMBER_NAMES)
