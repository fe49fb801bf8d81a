"""A model as a worker describes it to the master."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from edl_worker.core.layer_state import StateSummary


@dataclass(frozen=True, slots=True)
class VariableDescription:
    """A variable that workers exchange with the parameter plane, in wire order."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class TableDescription:
    """An embedding table. A new row is ``center + spread * x``, see the engine's ``initial_rows``.

    Attributes:
        dim: numbers of a row.
        distribution: of ``x``, by its number in ``edl.v1.EmbeddingTable``.
        min_count: an id has a row from its ``min_count``-th gradient on.
        max_age: a row that no update has used for so many updates is dropped; 0: none is.
    """

    name: str
    dim: int
    distribution: int
    center: float
    spread: float
    seed: int
    min_count: int
    max_age: int


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A description of a model that lets the master keep its parameters.

    Attributes:
        reduction: "mean" or "sum": how the loss reduces a minibatch.
        optimizer_json: the optimizer as Keras serializes it.
        warnings: what was hardly meant, which variables keep their own initial values, and what
            the trained model will lack.
        callbacks: names of the classes of callbacks to call at the ends of epochs.
        layer_states: of layers whose state is not among the variables, such as vocabularies.
    """

    variables: tuple[VariableDescription, ...] = ()
    tables: tuple[TableDescription, ...] = ()
    reduction: str = ""
    optimizer_json: str = ""
    warnings: tuple[str, ...] = ()
    callbacks: tuple[str, ...] = ()
    layer_states: tuple[StateSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainedModelDescription:
    """The file ``trained_model.pb`` in a job's output; the fields of ``edl.v1.TrainedModel``."""

    docker_commit_id: str = ""
    model_def: str = ""
    model_def_params: str = ""
    params_filename: str = ""
    input_function: str = ""
    loss: str = ""
    optimizer: str = ""
    dataset_fn: str = ""
    eval_metrics_fn: str = ""
    feature_columns: str = ""
    label_columns: str = ""
    model_zoo: str = ""
    minibatch_size: int = 0
    job: str = ""
    created_at: str = ""
    parameter_version: int = 0
    records_trained: int = 0
    epochs: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    keras_filename: str = ""
    saved_model: str = ""
    layer_states_filename: str = ""
    code_sha256: str = ""
    seed: int = 0
    data: bytes = b""
