"""Chooses the form of a model; no other module distinguishes forms."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from edl_worker.model_file.forms.keras_model import ModelClass, ModelInstance
from edl_worker.model_file.forms.model_definition import ModelDefinition
from edl_worker.model_file.forms.model_function import ModelFunction
from edl_worker.model_file.forms.specification import Specification

# The first form that accepts an object is the object's form.
FORMS: tuple[type[ModelDefinition], ...] = (
    ModelInstance,
    ModelClass,
    Specification,
    ModelFunction,
)


def model_definition(name: str, value: Any, module: ModuleType) -> ModelDefinition | None:
    """Return the object as a model definition; None if it has none of the forms."""
    for form in FORMS:
        if form.accepts(value):
            return form(name, value, module)
    return None


def candidates(module: ModuleType) -> Iterator[ModelDefinition]:
    """Yield the objects of a module that may be its model."""
    for name, value in vars(module).items():
        definition = model_definition(name, value, module)
        if definition is not None and definition.is_candidate():
            yield definition
