"""Options of training."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.options.option import TRAIN, Option, declare
from edl.core.options.strategies import ALLREDUCE, AUTO, OF_ELASTICDL, PARAMETER_SERVER
from edl.core.options.value_types import (
    Choice,
    Flag,
    Integer,
    RecordsOrDuration,
    StepRange,
    Steps,
    Text,
    WindowLength,
)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options that say how the model is trained."""

    num_epochs: int = declare(
        Option(
            Integer(1),
            "Number of passes over the data.",
            "10",
            default=1,
            verbs=TRAIN,
            spec="training.num_epochs",
        )
    )
    window: WindowLength | None = declare(
        Option(
            RecordsOrDuration(),
            "Train on a stream: on files that keep arriving in --data, until edl stop. A window "
            "ends after so many records, or so long after its first file came; metrics, evaluation "
            "and callbacks follow it as they follow an epoch.",
            "60s",
            default=None,
            default_text="the data is complete",
            verbs=TRAIN,
            spec="training.window",
        )
    )
    strategy: str = declare(
        Option(
            Choice((AUTO, ALLREDUCE, PARAMETER_SERVER), synonyms=OF_ELASTICDL),
            "How several workers train one model: by adding up their gradients in each step; or"
            " through a parameter server. With auto, models with embedding tables have the"
            " parameter server, and so have jobs with options that only it has.",
            PARAMETER_SERVER,
            default=AUTO,
            verbs=TRAIN,
        )
    )
    update: str = declare(
        Option(
            Choice(("sync", "async", "bounded")),
            "How the gradients of several workers update the parameters on a parameter server.",
            "sync",
            default="async",
            verbs=TRAIN,
            spec="training.update",
        )
    )
    grads_to_wait: int = declare(
        Option(
            Integer(1),
            "With --update sync: number of gradients in one update.",
            "4",
            default=0,
            default_text="the number of workers",
            verbs=TRAIN,
            spec="training.grads_to_wait",
        )
    )
    max_staleness: int = declare(
        Option(
            Integer(0),
            "With --update bounded: number of updates that a gradient may be behind.",
            "4",
            default=0,
            default_text="the number of workers; twice as many with --overlap",
            verbs=TRAIN,
            spec="training.max_staleness",
        )
    )
    overlap: bool = declare(
        Option(
            Flag(),
            "With --update async or bounded: compute a minibatch while the last gradient is sent. "
            "Steps are faster where sending takes long, but each gradient misses one more update, "
            "so the model may learn less in the same number of epochs.",
            default=False,
            verbs=TRAIN,
            spec="training.overlap",
        )
    )
    local_steps: int = declare(
        Option(
            Integer(1, 100_000),
            "With --update async: number of minibatches that a worker applies to its own copy of"
            " the model between two pushes.",
            "16",
            default=1,
            verbs=TRAIN,
            spec="training.local_steps",
        )
    )
    wire_precision: str = declare(
        Option(
            Choice(("float32", "float16", "bfloat16")),
            "Number format of parameters, gradients and embedding rows on the network.",
            "bfloat16",
            default="float32",
            verbs=TRAIN,
            spec="training.wire_precision",
        )
    )
    gradient_reduction: str = declare(
        Option(
            Choice(("mean", "sum")),
            "How the gradients of one update are combined.",
            "sum",
            default_text="the reduction of the loss",
            verbs=TRAIN,
            spec="training.gradient_reduction",
        )
    )
    evaluation_steps: int = declare(
        Option(
            Integer(0),
            "Number of updates between evaluations.",
            "1000",
            default=0,
            default_text="at the end of each epoch",
            verbs=TRAIN,
            spec="training.evaluation_steps",
        )
    )
    embedding_threshold: int = declare(
        Option(
            Integer(0),
            "Number of weights from which a Keras Embedding layer becomes an embedding table; "
            "0 for none.",
            "100000",
            default=1 << 20,
            verbs=TRAIN,
            spec="training.embedding_threshold",
        )
    )
    parameter_servers: int = declare(
        Option(
            Integer(0, 256),
            "Number of parameter server processes; with 0 the master holds the parameters.",
            "2",
            default=0,
            verbs=TRAIN,
            spec="training.parameter_servers",
        )
    )
    seed: int = declare(
        Option(
            Integer(0, 2**63 - 1),
            "Seed of all random numbers; the same seed repeats a run.",
            "42",
            default=0,
            verbs=TRAIN,
            spec="training.seed",
        )
    )
    shuffle: bool = declare(
        Option(
            Flag(),
            "Shuffle the records in each epoch; --no-shuffle keeps the order of the data.",
            default=True,
            verbs=TRAIN,
            spec="training.shuffle",
        )
    )
    init_from: str = declare(
        Option(
            Text("MODEL"),
            "Trained model (folder or URI), or .keras, .h5 or .safetensors file, whose values "
            "initialize variables of the same name and shape; a warning names the others.",
            "my_model",
            verbs=TRAIN,
            is_path=True,
            may_be_in_a_store=True,
            spec="training.init_from",
        )
    )
    checkpoint_dir: str = declare(
        Option(
            Text("DIR"),
            "Folder or URI for checkpoints.",
            "checkpoints",
            verbs=TRAIN,
            is_path=True,
            may_be_in_a_store=True,
            spec="training.checkpoint_dir",
        )
    )
    checkpoint_steps: int = declare(
        Option(
            Integer(0),
            "Number of updates between checkpoints. A job that is stopped takes one, too.",
            "1000",
            default=0,
            default_text="only one, at the end",
            verbs=TRAIN,
            spec="training.checkpoint_steps",
        )
    )
    keep_checkpoints: int = declare(
        Option(
            Integer(1),
            "Number of checkpoints to keep.",
            "5",
            default=3,
            verbs=TRAIN,
            spec="training.keep_checkpoints",
        )
    )
    tensorboard_dir: str = declare(
        Option(
            Text("DIR"),
            "Folder for TensorBoard files.",
            "tensorboard",
            default_text="a folder in the job's directory",
            verbs=TRAIN,
            is_path=True,
            spec="tensorboard_dir",
        )
    )
    profile: StepRange | None = declare(
        Option(
            Steps(),
            "Profile these steps of each worker, counted from 1, for TensorBoard.",
            "20:40",
            default=None,
            default_text="no profile",
            verbs=TRAIN,
            spec="training.profile",
        )
    )
