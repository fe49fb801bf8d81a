"""A model file's own processing of predictions: ``class PredictionOutputsProcessor``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from edl_proto.errors import ErrorCode
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import user_code_error
from edl_worker.model_file.zoo import compatibility

OutputsProcessor = Callable[[Any, int], None]
"""Gets the outputs of a minibatch and the number of the worker."""

_REMEDY = "Write a class with process(self, predictions, worker_id)."


def adapt_outputs_processor(definition: Definition, caller: DefinitionCaller) -> OutputsProcessor:
    """Return the method ``process`` of the processor, created once per worker.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    value = definition.value
    if inspect.isclass(value):
        value = caller.call(definition)
    if not callable(getattr(value, "process", None)):
        raise definition.error("has no method process", _REMEDY)

    def process(outputs: Any, worker_id: int) -> None:
        try:
            with compatibility.provide_removed_names():
                value.process(outputs, worker_id)
        except Exception as error:
            raise user_code_error(
                error,
                caller.zoo_root,
                code=ErrorCode.USER_CODE,
                action=f"{definition.name}.process raised",
                place=definition.place,
                remedy="Fix the method. The detail has a traceback.",
            ) from error

    return process
