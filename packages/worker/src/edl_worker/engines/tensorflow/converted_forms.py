"""The forms of a model for other runtimes than TensorFlow: LiteRT and ONNX.

Users ask for them with ``--export``, so a job whose model has no such form is refused before it
trains. Both are made of the function that the SavedModel serves, and take and return the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.step_engine import ExportForm
from edl_worker.trained_model import directory

SERVE = "serve"
"""The name of a SavedModel's signature."""

_ONNX_OPERATORS = 18
"""The version of ONNX's operators, which ONNX Runtime has since 1.14."""

_MAX_REASON_CHARACTERS = 300
_UNKNOWN_OPERATION = re.compile(r"'(tf\.[\w.]+)' op is neither")


def converted_forms(
    formats: Sequence[str], trace: Callable[[], Any], save_for_serving: Callable[[Path], None]
) -> Iterator[ExportForm]:
    """Yield the forms that a user asks for.

    Args:
        formats: ``litert``, ``onnx``.
        trace: returns the traced function from features to named outputs.
        save_for_serving: writes a SavedModel with that function.
    """
    convert = {
        "litert": (directory.LITERT, lambda: _convert_to_litert(save_for_serving)),
        "onnx": (directory.ONNX, lambda: _convert_to_onnx(trace())),
    }
    for name in formats:
        file, content = convert[name]
        yield ExportForm(
            file,
            partial(_write, content),
            partial(_check, name, content),
            f"The trained model has no {file}, since it cannot be converted",
            is_required=True,
        )


def _write(content: Callable[[], bytes], to: Path) -> None:
    to.write_bytes(content())


def _check(name: str, content: Callable[[], bytes], thorough: bool) -> None:
    """Check that a form can be made, as far as that is known before training.

    Raises:
        EdlError: USAGE, its converter is missing; MODEL_CONTRACT, it cannot convert the model.
    """
    where = f"--export {name}"
    if name == "onnx" and importlib.util.find_spec("tf2onnx") is None:
        raise EdlError(
            ErrorCode.USAGE,
            "tf2onnx, which converts models to ONNX, is not installed where the job runs",
            where=where,
            remedy="Run: pip install tf2onnx. For a job in containers or pods, write tf2onnx into "
            "the model zoo's requirements.txt.",
        )
    if not thorough:
        return
    try:
        content()
    except Exception as error:  # converters raise errors of all kinds
        raise EdlError(
            ErrorCode.MODEL_CONTRACT,
            f"the model cannot be converted: {_reason(error)}",
            where=where,
            remedy="Leave this form out: the SavedModel and model.keras have the whole model. Or "
            "move what cannot be converted, such as the lookup of texts, into dataset_fn.",
        ) from error


def _reason(error: Exception) -> str:
    """Return why a converter failed: the operations that it does not know, or its own sentence."""
    text = str(error)
    if unknown := set(_UNKNOWN_OPERATION.findall(text)):
        return _unknown_operations(unknown)
    return " ".join(text.split())[:_MAX_REASON_CHARACTERS].rstrip(" .,:") or type(error).__name__


def _unknown_operations(names: set[str]) -> str:
    return f"it has operations that the runtime does not know: {', '.join(sorted(names))}"


def _convert_to_litert(save_for_serving: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="edl-litert-") as folder:
        # The only form of a model that a converter takes together with its signature.
        source = Path(folder) / directory.SAVED_MODEL
        save_for_serving(source)
        converter = tf.lite.TFLiteConverter.from_saved_model(str(source), signature_keys=[SERVE])
        return bytes(converter.convert())


def _convert_to_onnx(traced: Any) -> bytes:
    onnx: Any = importlib.import_module("onnx")  # only where it is asked for
    tf2onnx: Any = importlib.import_module("tf2onnx")
    with _quiet("tf2onnx"):
        model, _ = tf2onnx.convert.from_function(
            traced, input_signature=traced.input_signature, opset=_ONNX_OPERATORS
        )
    # The converter only logs what it does not know, and keeps it under TensorFlow's name.
    unknown = {
        node.op_type for node in _nodes(model.graph) if not onnx.defs.has(node.op_type, node.domain)
    }
    if unknown:
        raise ValueError(_unknown_operations(unknown))
    return bytes(model.SerializeToString())


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of an ONNX graph, and of the branches and loops in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Let a library's loggers report nothing but failures."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
