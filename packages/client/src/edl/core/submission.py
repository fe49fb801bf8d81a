"""A user's submission: the options of a job, complete and consistent."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edl.core import locations, names
from edl.core.locations import absolute, scheme
from edl.core.model_code import Listing
from edl.core.options import Given, Option, Verb, conflicts, defaults, options_of, read
from edl.core.options.command import CommandOptions
from edl.core.options.data import DataOptions
from edl.core.options.image import ImageOptions
from edl.core.options.job import JobOptions
from edl.core.options.kubernetes import ClusterOptions, PodOptions
from edl.core.options.model import ModelOptions
from edl.core.options.prediction import PredictionOptions
from edl.core.options.training import TrainingOptions
from edl.core.platforms import PLATFORMS
from edl.core.problem import usage
from edl_runtime.model import git_source
from edl_runtime.model.git_source import GitSource

HOST = "127.0.0.1"
"""Address of local jobs; no other machine can reach it."""


@dataclass(frozen=True, kw_only=True)
class Submission(
    ModelOptions,
    DataOptions,
    TrainingOptions,
    PredictionOptions,
    JobOptions,
    ImageOptions,
    ClusterOptions,
    PodOptions,
    CommandOptions,
):
    """A complete job. Paths are absolute; names are as the user typed them.

    Every option of the verb has its own attribute; options of other verbs keep their default.

    Attributes:
        records_image: the user asked for an image, which the trained model is to name.
        builder_from_project: a project file names the builder.
        code: hashes of the model's files, where the client sees them.
    """

    verb: Verb
    records_image: bool = False
    builder_from_project: bool = False
    code: Listing = field(default_factory=dict)

    @property
    def runs_in_image(self) -> bool:
        """Whether the job's processes run in a container image."""
        return PLATFORMS[self.platform].runs_in_image

    @property
    def needs_image(self) -> bool:
        """Whether the job needs an image, to run in or to record in the trained model."""
        return self.runs_in_image or self.records_image

    @property
    def git_source(self) -> GitSource | None:
        """The git repository of the model zoo, if the zoo is in one."""
        return git_source.parse(self.model_zoo)

    def with_name(self, suffix: str) -> Submission:
        """Return the submission with a name made from the model's, if it has none."""
        if self.name:
            return self
        if self.verb is Verb.TRAIN:
            subject = names.find_subject(self.model_def)
        else:
            subject = f"{self.verb}-{posixpath.basename(self.trained_model)}"
        return replace(self, name=names.generate(subject, suffix))


def build(
    verb: Verb, given: Mapping[str, Given], *, cwd: str, environ: Mapping[str, str]
) -> Submission:
    """Return the submission that the given options describe.

    Args:
        given: options by their Python name.
        cwd: absolute folder that relative paths start from.
        environ: for ``~`` and ``$NAME`` in paths.

    Raises:
        Problem: USAGE, naming the option and where it was set.
    """
    values = read(verb, given)
    conflicts.check(verb, given, values)
    defaults.resolve(verb, given, values)
    for option in options_of(verb):
        value = values[option.name]
        if not option.is_path or not value:
            continue
        _check_locations(option, value, given)
        if verb is Verb.TRAIN and option.name == "output":
            locations.check_model_folder(value, option.flag, given[option.name].where)
        if isinstance(value, tuple):
            values[option.name] = tuple(absolute(part, cwd, environ) for part in value)
        else:
            values[option.name] = _location(option, value, given, cwd, environ)
    conflicts.check_places(given, values)
    requested = any(name in given and given[name].explicit for name in conflicts.IMAGE_OPTIONS)
    named_by = given.get("builder")
    return Submission(
        verb=verb,
        records_image=requested,
        builder_from_project=named_by is not None and named_by.from_project,
        **values,
    )


def _check_locations(
    option: Option, value: str | tuple[str, ...], given: Mapping[str, Given]
) -> None:
    for text in (value,) if isinstance(value, str) else value:
        locations.check(text, option.flag, given[option.name].where)


def _location(
    option: Option, text: str, given: Mapping[str, Given], cwd: str, environ: Mapping[str, str]
) -> str:
    if option.name == "model_zoo":
        try:
            if git_source.parse(text) is not None:
                return text
        except ValueError as error:
            # The message leaves the text out, because the text may contain a password.
            raise usage(
                f"--model-zoo: {error}",
                where=given[option.name].where,
                remedy="Write https://host/path.git, with #REF or #REF:FOLDER if need be, or"
                " git clone it and name the folder: --model-zoo my_zoo",
            ) from None
    location = absolute(text, cwd, environ)
    kind = scheme(location)
    if not kind or option.may_be_in_a_store:
        return location
    raise usage(
        f"{option.flag} {text}: this takes a folder, not {kind}://",
        where=given[option.name].where,
        remedy="Name a folder, of a volume on Kubernetes; data, checkpoints, outputs and trained"
        " models may be URIs.",
    )
