"""A Keras model, ready for the tasks of its job."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from edl_worker.core.batch import Batch
from edl_worker.core.row_engine import RowRequest
from edl_worker.core.step_engine import Metrics, ModelSummary
from edl_worker.engines.tensorflow.embedding.lookup_stages import in_stage
from edl_worker.engines.tensorflow.embedding.lookups import LookupOrder
from edl_worker.engines.tensorflow.keras_steps import KerasSteps
from edl_worker.engines.tensorflow.model import ModelFile
from edl_worker.engines.tensorflow.model.loss_parts import output_activations
from edl_worker.engines.tensorflow.output_masks import read_masks, set_masks
from edl_worker.engines.tensorflow.traced_functions import SizeAgnosticFunction

VERSIONS = {"tensorflow": tf.__version__, "keras": keras.__version__}


@dataclass(slots=True)
class LoadedKerasModel:
    """The ``ModelEngine`` of a Keras model.

    Attributes:
        source: the model file.
        predicts: use the model's ``predict_step`` if it defines one.
    """

    source: ModelFile
    zoo: Path
    sample: Batch
    steps: KerasSteps | None = None
    predicts: bool = False
    versions: dict[str, str] = field(default_factory=lambda: dict(VERSIONS))
    _order: LookupOrder | None = None
    _call: SizeAgnosticFunction = field(init=False)

    def __post_init__(self) -> None:
        self._call = SizeAgnosticFunction(self._trace)

    @property
    def has_call(self) -> bool:
        """Whether the model can be called; one with steps of its own may only call its parts."""
        return self.source.has_call

    def summarize(self) -> ModelSummary:
        """Return what the model file has."""
        return summarize(self.source)

    def infer(self, batch: Batch, wanted: RowRequest | None = None, rows: Any = None) -> Any:
        """Return the outputs of the model; see ``ModelEngine``."""
        given: tuple[Any, Any] = (None, None)
        if wanted is not None:
            self._order = wanted.lookups.order
            given = tf.convert_to_tensor(rows), wanted.lookups.tensors
        outputs, masks = self._call(batch.size, batch.features, open_nests=given)
        set_masks(outputs, masks)
        return outputs

    def process_outputs(self, outputs: Any, worker_id: int) -> None:
        """Give the outputs of a minibatch to the model file, if it wants them."""
        self.source.process_outputs(outputs, worker_id)

    def new_metrics(self) -> Metrics:
        """Return metrics that have counted nothing yet."""
        return self.source.new_metrics()

    @contextmanager
    def preserve_state(self) -> Iterator[None]:
        """Undo what steps do to variables that are not sent, such as the states of Dropout."""
        model = self.source.model
        before = [(v, v.numpy()) for v in model.variables if not v.dtype.startswith("float")]
        try:
            yield
        finally:
            for variable, value in before:
                variable.assign(value)

    def _trace(self, features: Any, rows: Any, lookups: Any) -> Any:
        stage = None
        if rows is not None:
            assert self.steps is not None
            assert self.steps.tables is not None
            assert self._order is not None
            stage = self.steps.tables.serve(self._order, rows, lookups)
        with in_stage(stage):
            if self.predicts:
                outputs = self.source.predict(features)
            else:
                outputs = self.source.call(features, training=False)
        return outputs, read_masks(outputs)


def summarize(file: ModelFile) -> ModelSummary:
    """Return what a model file has."""
    model = file.model
    parameters = None
    if model.built:
        parameters = sum(math.prod(v.shape) for v in model.trainable_variables)
    return ModelSummary(
        form=file.form,
        name=model.name,
        parameters=parameters,
        inputs=file.inputs,
        metrics=tuple(file.metric_names),
        output_names=tuple(getattr(model, "output_names", None) or ()),
        loss_place=file.loss_place,
        input_place=file.input_place,
        input_shapes=getattr(model, "inputs", None),
        warnings=file.warnings,
        replicated=file.replicated,
        activations=tuple(output_activations(model)),
    )
