"""Functions that return a Keras model: ``custom_model()`` and the like."""

from __future__ import annotations

import inspect
from typing import Any

from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.forms.model_definition import ModelDefinition

# A function with another name has to be named in --model-def.
FUNCTION_NAMES = (
    *("custom_model", "create_model", "build_model", "get_model", "make_model", "model_fn"),
    "model",
)


class ModelFunction(ModelDefinition):
    """``def custom_model(): return keras.Model(...)``."""

    form = "function"

    @staticmethod
    def accepts(value: Any) -> bool:
        return inspect.isroutine(value)

    def is_candidate(self) -> bool:
        return self._is_of_module() and self.name in FUNCTION_NAMES

    def constructors(self) -> list[Definition]:
        return [Definition("model", self.name, self.value)]
