"""Every option of ``train``, ``evaluate`` and ``predict``, once.

The command line, the Python API, ``EDL_*`` variables and the settings files all read this
table, so that an option has one name, one range and one default everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from edl.core.kinds import Choice, Duration, Flag, Integer, Kind, Params, Text, Texts, Workers
from edl.core.problem import Problem, usage
from edl.core.suggestions import did_you_mean, nearest


class Verb(StrEnum):
    """What a job does."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"


_ALL = frozenset(Verb)
_TRAIN = frozenset((Verb.TRAIN,))
_USE = frozenset((Verb.EVALUATE, Verb.PREDICT))
_OUT = frozenset((Verb.TRAIN, Verb.PREDICT))


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: as in Python; the command line has dashes for underscores.
        default: value when nobody sets it; None if that is decided from the other options,
            or if there is no value then.
        default_text: the default in words, where the value alone does not tell.
        required: the verbs that cannot do without.
        is_path: a relative path, to the folder of the settings file that names it.
    """

    name: str
    kind: Kind
    section: str
    help: str
    verbs: frozenset[Verb] = _ALL
    default: object = None
    default_text: str = ""
    required: frozenset[Verb] = frozenset()
    is_path: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "EDL_" + self.name.upper()


_MODEL, _DATA, _TRAINING, _JOB, _IMAGE, _HERE = (
    "The model",
    "Data and results",
    "Training",
    "The job",
    "The image",
    "This command",
)

OPTIONS: tuple[Option, ...] = (
    Option(
        "model_zoo",
        Text("DIR|URL"),
        _MODEL,
        "folder of model files, or https://host/path.git[#REF[:FOLDER]]",
        _TRAIN,
        required=_TRAIN,
        is_path=True,
    ),
    Option(
        "model_def",
        Text("A.B.NAME"),
        _MODEL,
        "the model: a name in A/B.py of the zoo, or the module alone",
        _TRAIN,
        required=_TRAIN,
    ),
    Option(
        "params",
        Params(),
        _MODEL,
        "parameters of the model and its functions, as Python literals",
        _TRAIN,
    ),
    Option("input_fn", Text("NAME"), _MODEL, "use this input_fn instead of the model file's"),
    Option("dataset_fn", Text("NAME"), _MODEL, "use this dataset_fn instead of the model file's"),
    Option(
        "loss",
        Text("NAME"),
        _MODEL,
        "use this loss instead of the model file's",
        frozenset((Verb.TRAIN, Verb.EVALUATE)),
    ),
    Option(
        "optimizer", Text("NAME"), _MODEL, "use this optimizer instead of the model file's", _TRAIN
    ),
    Option(
        "eval_metrics_fn",
        Text("NAME"),
        _MODEL,
        "use these metrics instead of the model file's",
        frozenset((Verb.TRAIN, Verb.EVALUATE)),
    ),
    Option(
        "feature_columns",
        Text("NAME"),
        _MODEL,
        "use these feature columns instead of the model file's",
    ),
    Option(
        "label_columns",
        Text("NAME"),
        _MODEL,
        "use these label columns instead of the model file's",
        frozenset((Verb.TRAIN, Verb.EVALUATE)),
    ),
    Option(
        "trained_model",
        Text("DIR"),
        _MODEL,
        "folder or URI that a training job wrote",
        _USE,
        required=_USE,
        is_path=True,
    ),
    Option(
        "data",
        Texts(),
        _DATA,
        "records: a file, folder, glob or URI, or several with commas",
        required=_ALL,
        is_path=True,
    ),
    Option(
        "validation_data",
        Texts(),
        _DATA,
        "records to evaluate on while training",
        _TRAIN,
        is_path=True,
    ),
    Option(
        "data_format",
        Choice(("recordio", "tfrecord", "csv")),
        _DATA,
        "what the data files are",
        default_text="by content",
    ),
    Option(
        "output",
        Text("DIR"),
        _DATA,
        "folder or URI to be made for the result",
        _OUT,
        required=_OUT,
        is_path=True,
    ),
    Option(
        "minibatch_size",
        Integer(1, 1_000_000),
        _DATA,
        "records in one step",
        default=32,
    ),
    Option(
        "records_per_task",
        Integer(0, 2**62),
        _DATA,
        "records that a worker takes at a time",
        default=0,
        default_text="from the data",
    ),
    Option("num_epochs", Integer(1), _TRAINING, "passes over the data", _TRAIN, default=1),
    Option(
        "update",
        Choice(("sync", "async", "bounded")),
        _TRAINING,
        "how gradients of several workers meet",
        _TRAIN,
        default="async",
    ),
    Option(
        "grads_to_wait",
        Integer(1),
        _TRAINING,
        "sync: gradients that make one update",
        _TRAIN,
        default_text="number of workers",
    ),
    Option(
        "max_staleness",
        Integer(0),
        _TRAINING,
        "bounded: updates that a gradient may be behind",
        _TRAIN,
        default_text="number of workers; twice with overlap",
    ),
    Option(
        "overlap",
        Flag(),
        _TRAINING,
        "async, bounded: compute the next minibatch while a gradient is pushed",
        _TRAIN,
        default=True,
        default_text="yes, for one worker",
    ),
    Option(
        "local_steps",
        Integer(1, 100_000),
        _TRAINING,
        "async: minibatches that a worker applies itself between exchanges",
        _TRAIN,
        default=1,
    ),
    Option(
        "wire_precision",
        Choice(("float32", "float16", "bfloat16")),
        _TRAINING,
        "what parameters, gradients and rows travel as",
        _TRAIN,
        default="float32",
    ),
    Option(
        "gradient_reduction",
        Choice(("mean", "sum")),
        _TRAINING,
        "how gradients of one update add up",
        _TRAIN,
        default_text="as the loss reduces a batch",
    ),
    Option(
        "evaluation_steps",
        Integer(0),
        _TRAINING,
        "updates between evaluations",
        _TRAIN,
        default=0,
        default_text="at the end of each epoch",
    ),
    Option(
        "embedding_threshold",
        Integer(0),
        _TRAINING,
        "numbers from which on a Keras Embedding layer travels row by row; 0: never",
        _TRAIN,
        default=1 << 20,
    ),
    Option(
        "parameter_servers",
        Integer(0, 256),
        _TRAINING,
        "processes that hold the parameters; 0: the master does",
        _TRAIN,
        default=0,
    ),
    Option("seed", Integer(0, 2**63 - 1), _TRAINING, "makes runs repeatable", _TRAIN, default=0),
    Option("shuffle", Flag(), _TRAINING, "take tasks in a seeded order", _TRAIN, default=True),
    Option(
        "init_from",
        Text("DIR"),
        _TRAINING,
        "start from this trained model's values",
        _TRAIN,
        is_path=True,
    ),
    Option(
        "checkpoint_dir",
        Text("DIR"),
        _TRAINING,
        "folder or URI for checkpoints",
        _TRAIN,
        is_path=True,
    ),
    Option(
        "checkpoint_steps",
        Integer(0),
        _TRAINING,
        "updates between checkpoints",
        _TRAIN,
        default=0,
        default_text="only the last",
    ),
    Option("keep_checkpoints", Integer(1), _TRAINING, "checkpoints to keep", _TRAIN, default=3),
    Option(
        "tensorboard_dir",
        Text("DIR"),
        _TRAINING,
        "folder for TensorBoard files",
        _TRAIN,
        default_text="in the job's directory",
        is_path=True,
    ),
    Option("name", Text("NAME"), _JOB, "name of the job", default_text="made from the model's"),
    Option(
        "num_workers",
        Workers(),
        _JOB,
        "worker processes; a range lets edl scale change it",
        default="1",
    ),
    Option("task_attempts", Integer(1), _JOB, "times a task is tried", default=3),
    Option(
        "allow_dead_letters",
        Flag(),
        _JOB,
        "go on without tasks that failed for good, and report them",
        default=False,
    ),
    Option(
        "dashboard_port",
        Integer(0, 65535),
        _JOB,
        "port of the job's page",
        default=0,
        default_text="any free one",
    ),
    Option("keep_page", Duration(), _JOB, "how long the page stays after the end", default="0s"),
    Option(
        "platform",
        Choice(("processes", "docker")),
        _JOB,
        "what master and workers are on this machine",
        default="processes",
    ),
    Option(
        "image",
        Text("NAME@DIGEST"),
        _IMAGE,
        "use this image, build none",
        default_text="the trained model's, or built from the zoo",
    ),
    Option(
        "builder",
        Text("HOST:PORT"),
        _IMAGE,
        "the builder service",
        default_text="one of this machine, for this command",
    ),
    Option("repository", Text("REGISTRY/PATH"), _IMAGE, "where images are pushed to"),
    Option(
        "base_image",
        Text("NAME"),
        _IMAGE,
        "image with worker and master to build on",
        default_text="the builder's own",
    ),
    Option(
        "git_credential",
        Text("NAME"),
        _IMAGE,
        "the builder's credential for a private repository of model files",
        _TRAIN,
    ),
    Option(
        "builder_ca",
        Text("FILE"),
        _IMAGE,
        "certificates by which the builder is trusted",
        default_text="this machine's",
        is_path=True,
    ),
    Option(
        "builder_identity",
        Text("FILE"),
        _IMAGE,
        "certificate and key, in PEM, shown to the builder",
        is_path=True,
    ),
    Option(
        "builder_config",
        Text("FILE"),
        _IMAGE,
        "settings of the builder of this machine: registries, limits",
        is_path=True,
    ),
    Option(
        "build_network",
        Text("NAME"),
        _IMAGE,
        "network of build steps on this machine",
        default_text="the engine's default",
    ),
    Option(
        "engine",
        Text("URL"),
        _IMAGE,
        "container engine of this machine",
        default_text="$DOCKER_HOST, or its usual socket",
    ),
    Option("build_log", Flag(), _HERE, "show all lines of an image's build", default=False),
    Option("detach", Flag(), _HERE, "start the job and return", default=False),
    Option(
        "dry_run", Flag(), _HERE, "check everything, print the job, start nothing", default=False
    ),
    Option("timeout", Duration(), _HERE, "stop the job if it takes longer"),
)

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}

EXAMPLES: Mapping[Verb, str] = {
    Verb.TRAIN: (
        "edl train --model-zoo model_zoo --model-def mnist.mnist_functional_api"
        ' --data "train/*.recordio" --output my_model'
    ),
    Verb.EVALUATE: 'edl evaluate --trained-model my_model --data "test/*.recordio"',
    Verb.PREDICT: (
        'edl predict --trained-model my_model --data "test/*.recordio" --output predictions'
    ),
}


def options_of(verb: Verb) -> tuple[Option, ...]:
    return tuple(option for option in OPTIONS if verb in option.verbs)


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody set, and where."""

    value: object
    where: str
    explicit: bool = True
    """Set for this very command, not in a variable or file that serves many."""


def read(verb: Verb, given: Mapping[str, Given]) -> dict[str, object]:
    """The values of all options of ``verb``: the given ones, read, and the defaults.

    Raises:
        Problem: an option does not belong to the verb, its value cannot be read, or a
            required one is missing.
    """
    known = {option.name: option for option in options_of(verb)}
    for name, entry in given.items():
        if name not in known:
            raise unknown(name, known, entry.where, verb)
    missing = [
        option for option in known.values() if verb in option.required and option.name not in given
    ]
    if missing:
        names = ", ".join(option.flag for option in missing)
        plural = "s" if len(missing) > 1 else ""
        raise usage(
            f"edl {verb} needs the option{plural} {names}",
            remedy=f"For example: {EXAMPLES[verb]}",
        )
    values: dict[str, object] = {}
    for name, option in known.items():
        if name not in given:
            values[name] = None if option.default is None else option.kind.read(option.default)
            continue
        entry = given[name]
        try:
            values[name] = option.kind.read(entry.value)
        except ValueError as error:
            raise usage(
                f"{option.flag}: {error}",
                where=entry.where,
                remedy=f"{option.flag} {option.kind.metavar}: {option.help}.",
            ) from None
    return values


def unknown(name: str, known: Iterable[str], where: str, verb: Verb | None = None) -> Problem:
    """The problem of a name that is no option, or none of this verb."""
    if verb is not None and name in BY_NAME:
        others = ", ".join(f"edl {other}" for other in Verb if other in BY_NAME[name].verbs)
        return usage(
            f"{BY_NAME[name].flag} is no option of edl {verb}",
            where=where,
            remedy=f"It belongs to {others}.",
        )
    near = nearest(name.replace("-", "_"), known)
    flag = "--" + name.replace("_", "-")
    remedy = did_you_mean(flag, ["--" + near.replace("_", "-")]) if near else ""
    return usage(
        f"there is no option {flag}",
        where=where,
        remedy=remedy or f"edl {verb or 'train'} --help lists all options.",
    )
