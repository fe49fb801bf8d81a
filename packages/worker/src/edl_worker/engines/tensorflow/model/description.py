"""The strict description of a model file, the same for every form in which one can be written.

The adapters turn what the user wrote into this description. Everything that trains, evaluates or
predicts uses the description only, and does not know in which form the model file was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.layer_state import LayerState
from edl_worker.engines.tensorflow.model.called_files import CalledFiles
from edl_worker.engines.tensorflow.model.custom_steps import CustomTrainStep
from edl_worker.engines.tensorflow.model.feature_mapping import FeatureMapper
from edl_worker.engines.tensorflow.model.layer_states import LayerStates
from edl_worker.model_file.adapters.outputs_processor import OutputsProcessor
from edl_worker.model_file.adapters.record_reader import RecordReader
from edl_worker.model_file.forms.model_definition import FormName
from edl_worker.model_file.input_pipeline import InputPipeline

Reduction = Literal["mean", "sum"]
AS_IN_KERAS = ""
"""Name of the metric that stands for all metrics of lists: its values have the names of Keras, and
it takes sample weights."""

LOSS = "loss"
"""Name of the value of the loss in an evaluation."""


@dataclass(frozen=True, slots=True)
class LossFunction:
    """The loss of a minibatch.

    Attributes:
        function: takes the keywords ``outputs``, ``labels`` and ``weights`` (None: all examples
            count the same); returns a scalar, or one value per sample.
        declared_reduction: the declared reduction of a Keras loss; None if only a trial
            call can show it.
        signature: for messages, ``loss(labels, predictions)``.
        place: for messages, file, line and function.
        for_compile: arguments of ``model.compile``, for steps that the model defines itself.
    """

    function: Callable[..., Any]
    declared_reduction: Reduction | None
    signature: str
    place: str
    for_compile: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MetricDefinitions:
    """The metrics of an evaluation, in addition to the loss.

    Attributes:
        keras_metrics: Keras metrics by name.
        batch_values: takes the keywords ``outputs`` and ``labels`` of a batch; returns a mapping
            of name to a scalar or to one value per sample. It may also return Keras metrics,
            which then count as the file's own.
        names: the names that ``batch_values`` is known to return before its first call.
        for_compile: arguments of ``model.compile``, for steps that the model defines itself.
        is_computed: whether some are functions, which ``model.compile`` does not take.
        place: for messages, file, line and name; empty if the model file defines none.
    """

    keras_metrics: Mapping[str, keras.metrics.Metric]
    batch_values: Callable[..., Mapping[str, Any]]
    names: tuple[str, ...]
    for_compile: Mapping[str, Any] = field(default_factory=dict)
    is_computed: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class ModelFileDescription:
    """Everything that a job needs of a model file.

    Attributes:
        zoo_root: folder of the model zoo, for the places in error messages.
        form: how the model was written, for reports only.
        place: file, line and name of the model.
        model: the Keras model; a subclassed one has no variables yet.
        feature_mapper: calls the model with the features of a minibatch.
        input_pipeline: makes minibatches of records.
        loss: None exactly if the job is a prediction.
        optimizer: None exactly if the job does not train.
        replicated: workers make the updates with the optimizer itself; None: not decided yet.
        refused_optimizer: why a master cannot make the updates; None: it can, or need not.
        metrics: empty if the model file has none.
        callbacks: to be called at the ends of epochs.
        callbacks_place: for messages, their file, line and name; empty if there are none.
        custom_train_step: of the model; None if it has none or the job does not train.
        has_custom_test_step: whether the model defines itself what an evaluation measures.
        class_weight: class to how much its examples count in training; empty: all the same.
        outputs_processors: get the predictions, in addition to what edl does with them.
        record_readers: the model file's own reader of the data; empty if edl reads it.
        layer_states: the layers that have taken state from data or files, such as vocabularies.
        other_states: what else was taken from data or files while the model file was loaded.
        called_files: those that the dataset function reads.
        warnings: of definitions that nothing uses, and of files that the job lacks elsewhere.
    """

    zoo_root: Path
    form: FormName
    place: str
    model: keras.Model
    feature_mapper: FeatureMapper
    input_pipeline: InputPipeline
    loss: LossFunction | None
    optimizer: keras.optimizers.Optimizer | None
    metrics: MetricDefinitions
    replicated: bool | None = False
    refused_optimizer: EdlError | None = None
    class_weight: Mapping[int, float] = field(default_factory=dict)
    callbacks: tuple[keras.callbacks.Callback, ...] = ()
    callbacks_place: str = ""
    custom_train_step: CustomTrainStep | None = None
    has_custom_test_step: bool = False
    outputs_processors: tuple[OutputsProcessor, ...] = ()
    record_readers: tuple[RecordReader, ...] = ()
    layer_states: LayerStates = field(default_factory=LayerStates)
    other_states: tuple[LayerState, ...] = ()
    called_files: CalledFiles = field(default_factory=CalledFiles)
    warnings: tuple[str, ...] = ()

    def contract_error(self, what: str, remedy: str, place: str = "") -> EdlError:
        """Return a MODEL_CONTRACT error; its place is the model's unless another one is given."""
        return EdlError(ErrorCode.MODEL_CONTRACT, what, where=place or self.place, remedy=remedy)
