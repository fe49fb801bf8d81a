"""Makes the plan of a study from what the user gives, and checks it before anything starts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edl.plugins.data import absolute
from edl.plugins.errors import EdlError, Problem, error_of, usage
from edl.plugins.jobs import JobSubmitter
from edl.plugins.options import (
    BY_NAME,
    Given,
    Option,
    Verb,
    command_section,
    gather,
    options_of,
    read_value,
)
from edl.plugins.submissions import Submission, names
from edl.plugins.texts import did_you_mean
from edl_tune.adapters.edl_jobs import options_with
from edl_tune.core.objective import check_reported, read_objective
from edl_tune.core.plan import PRUNERS, SAMPLERS, StudyPlan
from edl_tune.core.search_space import (
    EXAMPLE,
    Hyperparameter,
    ValueChoice,
    ValueRange,
    ValueTarget,
    from_dict,
    read_domain,
    read_texts,
)

SECTION = "tune"
_REPOSITORIES = ("https:", "ssh:", "git@")
"""Beginnings of model zoos that are repositories."""
_NUMBER_LENGTH = 5  # of "-0007" at the end of the name of a trial's job

_OF_OTHER_PLATFORMS = ("The image", "Kubernetes", "Pods on Kubernetes")
_OF_ONE_JOB = {
    *("name", "output", "window", "checkpoint_dir", "checkpoint_steps", "keep_checkpoints"),
    *("tensorboard_dir", "profile", "dashboard_port", "keep_page", "save_page", "platform"),
    *("build_log", "detach", "dry_run", "timeout", "tracker"),
}
"""Options of ``edl train`` that trials do not have, or that are those of the study."""

_OF_ONE_FOLDER = ("window", "checkpoint_dir", "tensorboard_dir", "profile")
"""Options that trials cannot share; a settings file may have them for other jobs."""

SEARCHABLE = ("minibatch-size", "learning-rate")
"""Options of jobs that may be searched; their names have dashes, unlike those of parameters."""

TRIAL_OPTIONS: tuple[Option, ...] = tuple(
    each
    for each in options_of(Verb.TRAIN)
    if each.name not in _OF_ONE_JOB and each.section not in _OF_OTHER_PLATFORMS
)
"""The options of ``edl train`` that ``edl tune`` passes on to each trial."""


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """The study that a user asks for; empty and None: not given.

    Attributes:
        search: texts such as ``units=32,64``.
        flags: options of trials.
    """

    name: str = ""
    output: str = ""
    search: Sequence[str] = ()
    objective: str = ""
    direction: str | None = None
    trials: int | None = None
    parallel: int | None = None
    sampler: str | None = None
    pruner: str | None = None
    min_epochs: int | None = None
    flags: Mapping[str, Given] = field(default_factory=dict)


def read_request(request: StudyRequest, cwd: Path) -> StudyPlan:
    """Return the plan that a user asks for, as far as no model file is needed: without ``space``.

    Raises:
        EdlError: an option or a value of ``[tune]`` is wrong.
    """
    try:
        return _read(request, cwd)
    except Problem as problem:
        raise error_of(problem) from None


def _read(request: StudyRequest, cwd: Path) -> StudyPlan:
    section, file = command_section(SECTION, environ=os.environ, cwd=cwd)
    settings = _Section(section, file)
    options = _options_of_trials(request.flags, cwd)
    missing = [each.flag for each in TRIAL_OPTIONS if each.required and each.name not in options]
    output = request.output or settings.text("output")
    if not output:
        missing.append("--output")
    if missing:
        raise usage(
            f"edl tune needs the option{'s'[: len(missing) > 1]} {', '.join(missing)}",
            remedy="For example: edl tune --model-zoo zoo --model-def regressor.DNN --data"
            f' "train/*.recordio" --validation-data test.recordio --output best {EXAMPLE}',
        )
    if not options.get("validation_data"):
        raise usage(
            "a study compares its trials on validation data, and there is none",
            where="--validation-data",
            remedy="Name the files that the trials are not trained on: --validation-data FILES.",
        )
    domains = settings.search() | read_texts(request.search)
    objective = read_objective(
        request.objective or settings.text("objective") or "val_loss",
        request.direction or settings.choice("direction", ("max", "min")),
    )
    name = request.name or settings.text("name") or _make_name(str(options["model_def"]))
    longest = names.MAX_LENGTH - _NUMBER_LENGTH
    if fault := names.find_fault(name, longest):
        raise usage(
            f"{name!r} cannot be the name of a study: {fault}",
            where="--name",
            remedy=f"For example: --name {names.suggest(name)[:longest]}",
        )
    return StudyPlan(
        name=name,
        objective=objective,
        search={name: str(domain) for name, domain in domains.items()},
        space=tuple(_of_user(name, domain) for name, domain in domains.items()),
        trials=request.trials or settings.number("trials") or 20,
        parallel=request.parallel or settings.number("parallel") or 1,
        sampler=request.sampler or settings.choice("sampler", SAMPLERS) or "tpe",
        pruner=request.pruner or settings.choice("pruner", PRUNERS) or "none",
        min_epochs=request.min_epochs or settings.number("min-epochs") or 1,
        seed=_read_seed(options.get("seed")),
        options=options,
        output=absolute(output, str(cwd), os.environ),
    )


def complete(plan: StudyPlan, submitter: JobSubmitter) -> StudyPlan:
    """Return the plan with the whole search space: what the model file asks for, too.

    A worker tries the first records with the first values of the space, so that what is wrong with
    data, options and model file is told before any trial starts.

    Raises:
        EdlError: the first thing that is wrong.
    """
    first = {each.name: each.domain.first for each in plan.space}
    options = options_with(plan, first) | {"output": plan.output, "name": f"{plan.name}-0000"}
    flags = {name: Given(value, _place(name)) for name, value in options.items()}
    try:
        checked = submitter.prepare(Verb.TRAIN, flags)
        _check_platform(checked.job)
        facts = submitter.dry_run(checked).facts
    except EdlError as error:
        name = error.where.removeprefix("--params, ")
        if name in plan.search:
            error.where = f"--search {name}"
        raise
    try:
        check_reported(plan.objective, facts.get("metrics") or ())
        asked = [from_dict(each) for each in facts.get("search_space") or ()]
        space = _merge(plan, asked)
        return replace(plan, space=space).with_limits(plan.trials, plan.parallel)
    except Problem as problem:
        raise error_of(problem) from None


def check_same(plan: StudyPlan, known: StudyPlan) -> None:
    """Check that a command asks for the study that exists under this name.

    Raises:
        EdlError: USAGE; it asks for another one.
    """
    if changes := known.changes(plan):
        raise error_of(
            Problem(
                "JOB_EXISTS",
                f"there is a study named {plan.name} with another {', '.join(changes)}",
                where=f"--name {plan.name}",
                remedy="Choose another --name for a new study, or continue that one:"
                f" edl tune --resume {plan.name}",
            )
        )


def _merge(plan: StudyPlan, asked: Sequence[Hyperparameter]) -> tuple[Hyperparameter, ...]:
    """Return the search space of the file with the user's domains, and then the user's others."""
    given = {each.name: each for each in plan.space}
    found = [
        replace(each, domain=given[each.name].domain) if each.name in given else each
        for each in asked
    ]
    known = {each.name for each in found}
    space = (*found, *(each for name, each in given.items() if name not in known))
    if not any(
        isinstance(each.domain, ValueRange) or len(each.domain.values) > 1 for each in space
    ):
        raise usage(
            "there is nothing to search",
            where="--search",
            remedy=f"Name parameters of the model file with their values: {EXAMPLE}. Or write a"
            " function build_model(hp) in the model file, as for KerasTuner.",
        )
    return space


def _of_user(name: str, domain: ValueRange | ValueChoice) -> Hyperparameter:
    if "-" not in name:
        return Hyperparameter(name, domain)
    if name not in SEARCHABLE:
        raise usage(
            f"the option --{name} cannot be searched",
            where=f"--search {name}",
            remedy=did_you_mean(name, SEARCHABLE)
            or f"These can be: {', '.join(SEARCHABLE)}. Parameters of model files have no dashes.",
        )
    return Hyperparameter(name, domain, ValueTarget.OPTION)


def _options_of_trials(flags: Mapping[str, Given], cwd: Path) -> dict[str, Any]:
    """Return the options of trials from all sources, with absolute paths."""
    known = {each.name: each for each in TRIAL_OPTIONS}
    options: dict[str, Any] = {}
    for name, given in gather(Verb.TRAIN, flags, environ=os.environ, cwd=cwd).items():
        if name in _OF_ONE_FOLDER:
            raise usage(
                f"trials cannot share {BY_NAME[name].flag}",
                where=given.where,
                remedy="Leave it out for edl tune.",
            )
        if name not in known:
            continue
        value: Any = given.value
        if known[name].is_path and not str(value).startswith(_REPOSITORIES):
            parts = [value] if isinstance(value, str) else list(value)
            paths = [absolute(part, str(cwd), os.environ) for part in parts]
            value = paths[0] if isinstance(value, str) else paths
        options[name] = value
    return options


def _read_seed(value: object) -> int:
    """Return the seed of trials for the sampler, too; any number if none is given."""
    if value is None:
        return secrets.randbits(31)
    return int(read_value(BY_NAME["seed"], Given(value, "--seed")))


def _check_platform(job: Submission) -> None:
    if job.platform != "processes":
        raise error_of(
            usage(
                f"edl tune runs its trials as processes of this machine, not on {job.platform}",
                where="--platform",
                remedy="Set EDL_PLATFORM=processes for this command.",
            )
        )


def _make_name(model_def: str) -> str:
    return names.generate(names.find_subject(model_def), secrets.token_hex(2))


def _place(name: str) -> str:
    return BY_NAME[name].flag if name in BY_NAME else name


class _Section:
    """The section ``[tune]`` of a settings file, whose values are checked as they are read."""

    _KNOWN = (
        *("search", "trials", "parallel", "objective", "direction", "sampler", "pruner"),
        *("min-epochs", "output", "name"),
    )

    def __init__(self, values: Mapping[str, Any], file: str) -> None:
        self._values = {key.replace("_", "-"): value for key, value in values.items()}
        self._file = file
        for key in self._values:
            if key not in self._KNOWN:
                raise usage(
                    f"[tune] has no setting {key}",
                    where=self._where(key),
                    remedy=did_you_mean(key, self._KNOWN) or f"It has {', '.join(self._KNOWN)}.",
                )

    def text(self, key: str) -> str:
        value = self._values.get(key, "")
        if not isinstance(value, str):
            raise usage(f"{key} is no text", where=self._where(key), remedy='Write it in "quotes".')
        return value

    def number(self, key: str) -> int | None:
        value = self._values.get(key)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise usage(f"{key} is {value!r}", where=self._where(key), remedy="Write 1 or more.")
        return value

    def choice(self, key: str, values: Sequence[str]) -> str | None:
        value = self.text(key) or None
        if value is not None and value not in values:
            raise usage(
                f"{key} is {value!r}", where=self._where(key), remedy=f"Write {', '.join(values)}."
            )
        return value

    def search(self) -> dict[str, ValueRange | ValueChoice]:
        table = self._values.get("search", {})
        if not isinstance(table, Mapping):
            raise usage(
                "search is no table",
                where=self._where("search"),
                remedy="Write [tune.search], and below it lines such as units = [32, 64].",
            )
        return {
            name: read_domain(value, self._where(f"search, {name}"))
            for name, value in table.items()
        }

    def _where(self, key: str) -> str:
        return f"{self._file}: [tune] {key}"
