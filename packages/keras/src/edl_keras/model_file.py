"""Writes the model zoo of a job of ``fit``: the model file, what it reads, and a user's code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import FunctionType
from typing import Any

import keras

from edl_keras.callbacks import Callback, write_callbacks
from edl_keras.model_config import check_copy, describe_model
from edl_keras.records import RecordLayout
from edl_keras.source_code import SourceCode, append_objects

MODEL_DEF = "edl_fit_model"
REPORT = "edl-fit-epoch "
"""The beginning of a line of a worker's log that has the values of an epoch."""
_CODE, _VALUES = "edl_fit_code.py", "edl_fit.json"


def write_zoo(
    zoo: Path,
    model: keras.Model,
    row: Any,
    input: RecordLayout | FunctionType,
    callbacks: Sequence[Callback],
    values: Mapping[str, Any],
) -> None:
    """Write a model zoo that makes a compiled model again, without its weights.

    Args:
        zoo: a folder; it is created.
        row: of x; None if it is not known.
        input: the arrays in records, or a function ``dataset_fn``.
        values: further ones that the model file reads.

    Raises:
        Problem: a part of the model cannot travel.
    """
    code = SourceCode()
    described = describe_model(model)
    check_copy(model, described, row)
    append_objects(code, described.objects)
    write_callbacks(code, callbacks)
    layout = None
    if isinstance(input, RecordLayout):
        layout = input.to_json()
    elif (name := code.add(input)) != "dataset_fn":
        code.append(f"dataset_fn = {name}")
    content = {
        "model": described.config,
        "compile": described.compiled,
        "compiles_itself": type(model).compile_from_config is not keras.Model.compile_from_config,
        "layout": layout,
        "report": REPORT,
        "image_data_format": keras.config.image_data_format(),
        "dtype_policy": keras.saving.serialize_keras_object(keras.config.dtype_policy()),
        **values,
    }
    zoo.mkdir(parents=True)
    for place, file in code.modules.files.items():
        target = zoo / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    (zoo / _CODE).write_text(code.text, encoding="utf-8")
    (zoo / _VALUES).write_text(json.dumps(content), encoding="utf-8")
    source = files("edl_keras").joinpath("zoo", f"{MODEL_DEF}.py").read_text(encoding="utf-8")
    (zoo / f"{MODEL_DEF}.py").write_text(source, encoding="utf-8")
