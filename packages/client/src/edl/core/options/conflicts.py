"""Options that cannot go together, or that have no effect without another one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edl.core import names
from edl.core.locations import scheme
from edl.core.options import prediction
from edl.core.options.kubernetes import ClusterOptions, PodOptions
from edl.core.options.option import Given, Verb
from edl.core.options.strategies import ALLREDUCE, FIXED_BY_ALLREDUCE, LOCAL, PARAMETER_SERVER
from edl.core.options.table import BY_NAME
from edl.core.platforms import KUBERNETES, PLATFORMS
from edl.core.problem import usage
from edl_runtime.image_names import pinned_name

IMAGE_OPTIONS = ("image", "builder", "repository")
"""Options that ask for an image."""

_WRITTEN_BEFORE_THE_OUTPUT = {
    "checkpoint_dir": "checkpoints",
    "tensorboard_dir": "tensorboard",
    "data_cache": "cache",
}


def check(verb: Verb, given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    """Check the values of all options of the verb against each other.

    Raises:
        Problem: USAGE, naming the option and where it was set, or the package that is missing.
    """
    platform = PLATFORMS[values["platform"]]  # its package may be missing
    _check_name(given, values)
    if values["detach"] and values["timeout"] is not None:
        raise usage(
            "--timeout cannot be combined with --detach: no command would be there to stop the job",
            remedy="Leave one out; edl wait NAME --timeout waits for a detached job.",
        )
    _check_image(given, values)
    _check_cluster(given, values)
    if not values["data_cache"]:
        _needs("data_cache_size", "--data-cache", given)
    if verb is Verb.PREDICT:
        _check_format(given, values)
    if verb is Verb.TRAIN:
        _check_strategy(given, values)
        _check_training(given, values)
    elif not platform.runs_in_image:
        usable, _ = PLATFORMS.load_all()
        needed = " or ".join(one.name for one in usable.values() if one.runs_in_image)
        for option in IMAGE_OPTIONS:
            _needs(option, f"--platform {needed}", given)


def check_places(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    """Check that the job writes nothing into the place where its output will appear.

    Without this check, a job would train to its end, and only then find the place taken.

    Args:
        values: of all options of the verb, with absolute places.

    Raises:
        Problem: USAGE, naming the option and where it was set.
    """
    output = str(values.get("output", "")).rstrip("/")
    for option, suffix in _WRITTEN_BEFORE_THE_OUTPUT.items():
        place = values.get(option, "")
        if output and f"{place}/".startswith(f"{output}/"):
            flag = BY_NAME[option].flag
            raise usage(
                f"{flag} {place} is in --output {output}, which must not exist until the job ends",
                where=given[option].where,
                remedy=f"Name a folder next to the output: {flag} {output}-{suffix}",
            )


def _check_name(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    name = values["name"]
    if name and (fault := names.find_fault(name)):
        raise usage(
            f"{name!r} cannot be the name of a job: {fault}",
            where=given["name"].where,
            remedy=f"For example: --name {names.suggest(name)}",
        )


def _check_image(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    image = values["image"]
    if image and not pinned_name(image):
        raise usage(
            f"--image {image}: name an image by its digest, so that it cannot change",
            where=given["image"].where,
            remedy="Write registry/path@sha256:..., as edl zoo build prints it.",
        )


def _check_cluster(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    if values["platform"] == KUBERNETES:
        entry = given.get("dashboard_port")
        if entry is not None and entry.explicit:
            raise usage(
                "--dashboard-port has no effect on Kubernetes",
                where=entry.where,
                remedy="edl dashboard NAME --port N forwards the page to a port of this machine.",
            )
        entry = given.get("gpus")
        if entry is not None and entry.explicit:
            raise usage(
                "--gpus has no effect on Kubernetes, where pods ask for devices",
                where=entry.where,
                remedy="Give each worker one: --worker-resources cpu=4,memory=8Gi,nvidia.com/gpu=1",
            )
        if not values["ingress"]:
            _needs("ingress_class", "--ingress", given)
        return
    for group in (ClusterOptions, PodOptions):
        for field in dataclasses.fields(group):
            _needs(field.name, f"--platform {KUBERNETES}", given)


def _check_format(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    wanted, named = values["format"], prediction.format_of(values["output"])
    if wanted and named and wanted != named:
        raise usage(
            f"--format {wanted} does not match --output {values['output']}",
            where=given["format"].where,
            remedy="Leave --format out, or name a folder, which gets a file for each data file.",
        )
    if not wanted and (suffix := prediction.other_suffix(values["output"])):
        raise usage(
            f"--output {values['output']}: .{suffix} is not a format of predictions",
            where=given["output"].where,
            remedy="Use .csv, .jsonl, .parquet or .recordio; with --format, the output is a "
            "folder of any name.",
        )


def _check_strategy(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    if values["strategy"] == ALLREDUCE:
        _check_allreduce(given, values)
        return
    workers, count = given.get("num_workers"), values["num_workers"]
    if values["strategy"] == LOCAL and count.max > 1 and workers is not None and workers.explicit:
        raise usage(
            f"--num-workers {count} cannot be combined with the strategy Local, which trains with"
            " one worker",
            where=workers.where,
            remedy=f"Leave --num-workers out, or use --strategy {ALLREDUCE} or --strategy"
            f" {PARAMETER_SERVER}.",
        )
    _check_updates(given, values)


def _check_allreduce(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    chosen = f"--strategy {ALLREDUCE}"
    for name, fixed in FIXED_BY_ALLREDUCE.items():
        entry, flag = given.get(name), BY_NAME[name].flag
        if entry is not None and entry.explicit and values[name] != fixed.value:
            raise usage(
                f"{flag} cannot be combined with {chosen}: {fixed.reason}",
                where=entry.where,
                remedy=f"Leave {flag} out, or use --strategy {PARAMETER_SERVER}.",
            )


def _check_updates(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    update, overlap, local = values["update"], values["overlap"], values["local_steps"] > 1
    fresh = "max_staleness" in given and values["max_staleness"] == 0
    for option, condition, needed in (
        ("grads_to_wait", update == "sync", "--update sync"),
        ("max_staleness", update == "bounded", "--update bounded"),
        ("overlap", not overlap or update != "sync", "--update async"),
        ("overlap", not overlap or not fresh, "--max-staleness 1"),
        ("overlap", not overlap or not local, "--local-steps 1"),
        ("local_steps", not local or update == "async", "--update async"),
    ):
        if not condition:
            _needs(option, needed, given)


def _check_training(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    for option, condition, needed in (
        ("evaluation_steps", bool(values["validation_data"]), "--validation-data"),
        ("checkpoint_steps", bool(values["checkpoint_dir"]), "--checkpoint-dir"),
        ("keep_checkpoints", bool(values["checkpoint_dir"]), "--checkpoint-dir"),
    ):
        if not condition:
            _needs(option, needed, given)
    _check_topics(given, values)
    if values["window"] is not None and (epochs := given.get("num_epochs")) and epochs.explicit:
        raise usage(
            "--num-epochs cannot be combined with --window: a stream has no end to begin again at",
            where=epochs.where,
            remedy="Leave one out; edl stop ends a stream.",
        )


def _check_topics(given: Mapping[str, Given], values: Mapping[str, Any]) -> None:
    """Check that a stream is of topics or of files, and that ``--allow-gaps`` is for topics."""
    data = values["data"] or ()
    topics = [uri for uri in data if scheme(uri) == "kafka"]
    if not topics or values["window"] is None:
        _needs("allow_gaps", "--window and a topic as --data", given)
    if not topics:
        return
    # Help needs no reader of data, which takes long to import.
    from recordio.kafka.addresses import find_fault

    if fault := find_fault(data, are_stream=values["window"] is not None):
        raise usage(f"--data: {fault[0]}", where=given["data"].where, remedy=fault[1])


def _needs(option: str, needed: str, given: Mapping[str, Given]) -> None:
    entry = given.get(option)
    # In a settings file, the option may be there for other jobs.
    if entry is not None and entry.explicit:
        flag = BY_NAME[option].flag
        raise usage(
            f"{flag} has no effect without {needed}",
            where=entry.where,
            remedy=f"Add {needed}, or leave {flag} out.",
        )
