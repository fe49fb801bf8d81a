"""The forms of a Keras model in which it can be served and loaded again."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from edl_worker.core.outputs import named_outputs
from edl_worker.core.step_engine import ExportForm
from edl_worker.engines.tensorflow.converted_forms import SERVE, converted_forms
from edl_worker.engines.tensorflow.internals import without_default_signature
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.model.portability import describe_limits
from edl_worker.trained_model import directory


def export_forms(
    file: ModelFile,
    input_spec: Any,
    with_optimizer: Callable[[], AbstractContextManager[None]] = nullcontext,
    formats: Sequence[str] = (),
) -> tuple[ExportForm, ...]:
    """Return the forms of a model: Keras's own file, a SavedModel, and those asked for.

    Args:
        file: the model, with the values to write.
        input_spec: specification of a minibatch's features, any size.
        with_optimizer: gives the model its optimizer for Keras's file.
        formats: further forms: ``litert``, ``onnx``.
    """
    model = file.model

    def save(to: Path) -> None:
        with with_optimizer():
            model.save(to)

    def trace() -> Any:
        names = list(getattr(model, "output_names", ()) or ())

        def serve(features: Any) -> dict[str, Any]:
            return named_outputs(file.call(features, training=False), names)

        # As a traced function: Keras itself knows no signatures of sparse or ragged features.
        signature = [_with_names(input_spec, model)]
        traced = tf.function(serve, input_signature=signature, autograph=False)
        traced.get_concrete_function()
        return traced

    def save_for_serving(to: Path) -> None:
        """Write a SavedModel whose signature takes features as the pipeline makes them."""
        archive = keras.export.ExportArchive()
        archive.track(model)
        archive.add_endpoint(SERVE, trace())
        with without_default_signature():
            archive.write_out(str(to), verbose=False)

    return (
        ExportForm(
            directory.KERAS,
            save,
            lambda thorough: keras.saving.serialize_keras_object(model),
            f"The trained model has no {directory.KERAS}, since Keras cannot save this model",
            lambda thorough: describe_limits(model, thorough=thorough),
        ),
        ExportForm(
            directory.SAVED_MODEL,
            save_for_serving,
            lambda thorough: trace() if thorough else None,
            "The trained model has no SavedModel, since TensorFlow cannot trace this model for "
            "serving",
        ),
        *converted_forms(formats, trace, save_for_serving),
    )


def _with_names(spec: Any, model: keras.Model) -> Any:
    """Return names for the signature's inputs; a single tensor is named as the model's input."""
    if isinstance(spec, dict):
        return {
            name: tf.TensorSpec(part.shape, part.dtype, name=served)
            if isinstance(part, tf.TensorSpec)
            else part
            for (name, part), served in zip(spec.items(), _serving_names(spec), strict=True)
        }
    if isinstance(spec, tf.TensorSpec):
        inputs = getattr(model, "input_names", None) or ["features"]
        return tf.TensorSpec(spec.shape, spec.dtype, name=inputs[0])
    return spec


def _serving_names(names: Iterable[str]) -> list[str]:
    """Return names that a signature may have, different without regard to upper and lower case.

    Columns of tables are called ``from``, ``class`` or ``first name``, which no parameter may be.
    """
    found: list[str] = []
    for name in names:
        served = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not served[:1].isalpha():
            served = f"x{served}"
        taken = [each.lower() for each in found]
        while keyword.iskeyword(served) or served == "self" or served.lower() in taken:
            served += "_"
        found.append(served)
    return found
