"""The parts of a job that a worker needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path


class JobType(Enum):
    """The kinds of jobs, by what they do with the model."""

    TRAIN = auto()
    EVALUATE = auto()
    PREDICT = auto()


class WirePrecision(Enum):
    """The type in which trainable float32 numbers are sent."""

    FLOAT32 = auto()
    FLOAT16 = auto()
    BFLOAT16 = auto()


@dataclass(frozen=True, slots=True)
class ModelReference:
    """The model zoo, the model in it, and the definitions that replace the model file's own.

    The fields are those of ``edl.v1.ModelSpec``; an empty one means that the option is not given.

    Attributes:
        copies: folder below which the zoo is a copy, with the whole path that its user knows; empty
            if it is no copy.
        code_sha256: of the files that were submitted; empty if they were not recorded.
        learning_rate: replaces the optimizer's constant one; None: the optimizer's own.
    """

    model_zoo: str
    model_def: str
    params: str = ""
    input_fn: str = ""
    dataset_fn: str = ""
    loss: str = ""
    optimizer: str = ""
    eval_metrics_fn: str = ""
    feature_columns: str = ""
    label_columns: str = ""
    copies: str = ""
    code_sha256: str = ""
    learning_rate: float | None = None

    @property
    def submitted_zoo(self) -> Path | None:
        """The folder that the zoo is a copy of; None if it is no copy."""
        return Path(self.model_zoo.removeprefix(self.copies)) if self.copies else None

    def override_with(self, other: ModelReference) -> ModelReference:
        """Return these options, replaced by every option of the other that is given."""
        given = {name: getattr(other, name) for name in ModelReference.__slots__}
        return replace(self, **{n: value for n, value in given.items() if value not in ("", None)})


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """The settings for how a job trains.

    Attributes:
        sync: gradients are combined to synchronous updates.
        overlap: compute the next minibatch while a gradient is being pushed.
        local_steps: minibatches that a worker applies by itself before it pushes them together.
        embedding_threshold: Keras Embedding layers of at least so many numbers are served row by
            row; 0: none are.
        init_from: trained model, or file of weights, whose values are the initial ones.
        epochs: how often the job trains on its data.
        validates: whether the job has validation data.
        profile: number of the first and the last step to profile, counted from 1; None: none are.
        shuffle: the records of an epoch come in random order.
        replicated: each worker holds all values, and the workers train in step; None: if the model
            has no embedding tables.
        reduction: ``mean`` or ``sum``: how the loss reduces a minibatch; empty: as the model says.
    """

    seed: int
    sync: bool
    overlap: bool
    local_steps: int
    precision: WirePrecision
    embedding_threshold: int
    init_from: str
    epochs: int
    validates: bool
    profile: tuple[int, int] | None
    shuffle: bool = True
    replicated: bool | None = False
    reduction: str = ""

    @property
    def trains_locally(self) -> bool:
        """Whether each minibatch updates the worker's own values, which are pushed later."""
        return self.local_steps > 1


@dataclass(frozen=True, slots=True)
class PredictionSettings:
    """The settings for what a job writes for each record that it predicts.

    Attributes:
        keep: columns or features of the record to copy next to the prediction.
        postprocess: argmax, sigmoid or softmax; empty: the outputs stay as they are.
    """

    keep: tuple[str, ...]
    postprocess: str


@dataclass(frozen=True, slots=True)
class DataCacheSettings:
    """The settings for where workers cache what they read from stores.

    Attributes:
        folder: empty: nowhere.
        gibibytes: that it may hold.
    """

    folder: str
    gibibytes: int


@dataclass(frozen=True, slots=True)
class JobDescription:
    """The part of ``edl.v1.JobSpec`` that concerns a worker.

    Attributes:
        data: paths, globs, directories or URIs.
        data_format: empty: found out from the content.
        output: directory or URI of the trained model.
        trained_model: the model to evaluate or to predict with.
        image: digest-pinned reference; empty for local processes.
        grace_s: time from SIGTERM to SIGKILL.
        exported_job: the job whose model this one exports; empty: its own.
        export_formats: further forms of the trained model: ``litert``, ``onnx``.
        columns: of CSV: those that the model file gets, in order; empty: those of each file.
        sample: the first records of a stream; empty: they are in the data.
    """

    name: str
    type: JobType
    model: ModelReference
    data: tuple[str, ...]
    data_format: str
    output: str
    trained_model: str
    minibatch_size: int
    training: TrainingSettings
    prediction: PredictionSettings
    data_cache: DataCacheSettings
    image: str
    grace_s: float
    exported_job: str
    export_formats: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sample: tuple[bytes, ...] = ()
