"""What a user submits: the options of a job, complete and consistent."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from edl.core import gitzoo, names
from edl.core.gitzoo import GitZoo
from edl.core.kinds import WorkerRange
from edl.core.locations import absolute, scheme, split
from edl.core.options import BY_NAME, Given, Verb, read
from edl.core.problem import usage

HOST = "127.0.0.1"
"""Where a local job listens: nobody else's machine can reach it."""


PROCESSES, DOCKER = "processes", "docker"

_PINNED = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job to be, whole. Places are absolute; names are as the user typed them.

    Every option of the verb is here under its own name; those of other verbs keep the value
    that means nothing.
    """

    verb: Verb
    name: str = ""
    model_zoo: str = ""
    model_def: str = ""
    params: str = ""
    input_fn: str = ""
    dataset_fn: str = ""
    loss: str = ""
    optimizer: str = ""
    eval_metrics_fn: str = ""
    feature_columns: str = ""
    label_columns: str = ""
    trained_model: str = ""
    data: tuple[str, ...] = ()
    validation_data: tuple[str, ...] = ()
    data_format: str = ""
    output: str = ""
    minibatch_size: int = 32
    records_per_task: int = 0
    num_epochs: int = 1
    update: str = "async"
    grads_to_wait: int = 0
    max_staleness: int = 0
    overlap: bool = True
    local_steps: int = 1
    wire_precision: str = "float32"
    gradient_reduction: str = ""
    evaluation_steps: int = 0
    embedding_threshold: int = 1 << 20
    parameter_servers: int = 0
    seed: int = 0
    shuffle: bool = True
    init_from: str = ""
    checkpoint_dir: str = ""
    checkpoint_steps: int = 0
    keep_checkpoints: int = 3
    tensorboard_dir: str = ""
    num_workers: WorkerRange = field(default_factory=lambda: WorkerRange(1, 1))
    task_attempts: int = 3
    allow_dead_letters: bool = False
    dashboard_port: int = 0
    keep_page: float = 0.0
    platform: str = PROCESSES
    image: str = ""
    builder: str = ""
    repository: str = ""
    base_image: str = ""
    git_credential: str = ""
    builder_ca: str = ""
    builder_identity: str = ""
    builder_config: str = ""
    build_network: str = ""
    engine: str = ""
    build_log: bool = False
    detach: bool = False
    dry_run: bool = False
    timeout: float | None = None
    with_image: bool = False
    """An image is wanted: to run in, or to be recorded in the trained model."""

    @property
    def in_containers(self) -> bool:
        return self.platform == DOCKER

    @property
    def git_zoo(self) -> GitZoo | None:
        """The repository of model files, if the zoo is one."""
        return gitzoo.parse(self.model_zoo)

    def named(self, suffix: str) -> Submission:
        """With a name made from the model's, if it has none."""
        if self.name:
            return self
        if self.verb is Verb.TRAIN:
            subject = names.subject_of(self.model_def)
        else:
            subject = f"{self.verb}-{posixpath.basename(self.trained_model)}"
        return replace(self, name=names.generate(subject, suffix))


_FIELDS = frozenset(item.name for item in fields(Submission)) - {"with_image"}
_PLACES = (
    *("model_zoo", "trained_model", "output", "init_from", "checkpoint_dir", "tensorboard_dir"),
    *("builder_ca", "builder_identity", "builder_config"),
)
_FOR_IMAGES = ("image", "builder", "repository")
_MAY_BE_IN_A_STORE = ("trained_model", "output", "init_from", "checkpoint_dir")


def build(
    verb: Verb, given: Mapping[str, Given], *, cwd: str, environ: Mapping[str, str]
) -> Submission:
    """The submission that the given options describe.

    Args:
        given: options by their Python name.
        cwd: absolute folder that relative places start from.
        environ: for ``~`` and ``$NAME`` in places.

    Raises:
        Problem: USAGE, naming the option and where it was set.
    """
    values = read(verb, given)
    _check_together(verb, given, values)
    workers = values["num_workers"]
    assert isinstance(workers, WorkerRange)
    if verb is Verb.TRAIN:
        fresh = values["update"] == "sync" or values["max_staleness"] == 0
        # Gradients of several workers are behind one another as it is; more than that has to be
        # asked for, since a learning rate that was right may then be too high.
        wanted = values["overlap"] and ("overlap" in given or workers.max == 1)
        values["overlap"] = wanted and not fresh and values["local_steps"] == 1
        # A synchronous step of everybody; and nobody is ever more than one round behind, where
        # each has one gradient on its way besides two.
        if values["update"] != "sync":
            values["grads_to_wait"] = 0
        elif values["grads_to_wait"] is None:
            values["grads_to_wait"] = workers.max
        if values["update"] != "bounded":
            values["max_staleness"] = 0
        elif values["max_staleness"] is None:
            values["max_staleness"] = workers.max * (2 if values["overlap"] else 1)
    settled: dict[str, Any] = {
        name: value for name, value in values.items() if value is not None and name in _FIELDS
    }
    for name in _PLACES:
        if settled.get(name):
            settled[name] = _place(name, settled[name], given, cwd, environ)
    for name in ("data", "validation_data"):
        if name in settled:
            settled[name] = tuple(absolute(part, cwd, environ) for part in split(settled[name]))
            if not settled[name]:
                raise usage(f"{BY_NAME[name].flag}: it is empty", where=given[name].where)
    asked = any(name in given and given[name].explicit for name in _FOR_IMAGES)
    settled["with_image"] = settled["platform"] == DOCKER or asked
    return Submission(verb=verb, **settled)


def _check_together(verb: Verb, given: Mapping[str, Given], values: Mapping[str, object]) -> None:
    name = values.get("name")
    if isinstance(name, str) and (fault := names.fault(name)):
        raise usage(
            f"{name!r} cannot be the name of a job: {fault}",
            where=given["name"].where,
            remedy=f"For example: --name {names.suggestion(name)}",
        )
    if values.get("detach") and values.get("timeout") is not None:
        raise usage(
            "--timeout cannot go with --detach: nobody would be there to stop the job",
            remedy="Leave one out; edl wait NAME --timeout waits for a detached job.",
        )
    image = values.get("image")
    if isinstance(image, str) and not _PINNED.fullmatch(image):
        raise usage(
            f"--image {image}: an image is named by its digest, so that it stays the same",
            where=given["image"].where,
            remedy="Write registry/path@sha256:..., as edl zoo build prints it.",
        )
    if verb is not Verb.TRAIN:
        for option in _FOR_IMAGES:
            entry = given.get(option)
            if entry is not None and entry.explicit and values["platform"] != DOCKER:
                raise usage(
                    f"{BY_NAME[option].flag} has no effect without --platform docker",
                    where=entry.where,
                    remedy=f"Add --platform docker, or leave {BY_NAME[option].flag} out.",
                )
        return
    for option, condition, needs in (
        ("grads_to_wait", values["update"] == "sync", "--update sync"),
        ("max_staleness", values["update"] == "bounded", "--update bounded"),
        ("overlap", values["update"] != "sync" or not values["overlap"], "--update async"),
        ("overlap", values["max_staleness"] != 0 or not values["overlap"], "--max-staleness 1"),
        ("overlap", values["local_steps"] == 1 or not values["overlap"], "--local-steps 1"),
        (
            "local_steps",
            values["update"] == "async" or values["local_steps"] == 1,
            "--update async",
        ),
        ("evaluation_steps", bool(values["validation_data"]), "--validation-data"),
        ("checkpoint_steps", bool(values["checkpoint_dir"]), "--checkpoint-dir"),
        ("keep_checkpoints", bool(values["checkpoint_dir"]), "--checkpoint-dir"),
    ):
        entry = given.get(option)
        # In a settings file it may wait for the jobs that it is meant for.
        if entry is not None and entry.explicit and not condition:
            raise usage(
                f"{BY_NAME[option].flag} has no effect without {needs}",
                where=entry.where,
                remedy=f"Add {needs}, or leave {BY_NAME[option].flag} out.",
            )


def _place(
    name: str, text: str, given: Mapping[str, Given], cwd: str, environ: Mapping[str, str]
) -> str:
    if name == "model_zoo":
        try:
            if gitzoo.parse(text) is not None:
                return text
        except ValueError as error:
            # Not the text itself: it may hold a password.
            raise usage(
                f"--model-zoo: {error}",
                where=given[name].where,
                remedy="Write https://host/path.git, with #REF or #REF:FOLDER if need be, or"
                " git clone it and name the folder: --model-zoo my_zoo",
            ) from None
    place = absolute(text, cwd, environ)
    kind = scheme(place)
    if not kind or name in _MAY_BE_IN_A_STORE:
        return place
    raise usage(
        f"{BY_NAME[name].flag} {text}: a job on this machine takes a local folder, not {kind}://",
        where=given[name].where,
        remedy="Name a folder of this machine; data, checkpoints, outputs and trained models may "
        "be URIs.",
    )
