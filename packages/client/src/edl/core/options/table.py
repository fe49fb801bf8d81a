"""All options of ``train``, ``evaluate`` and ``predict``.

The command line, the Python API, ``EDL_*`` variables, settings files, the documentation and the
encoding of a ``JobSpec`` all derive from this table.
"""

from __future__ import annotations

from collections.abc import Mapping

from edl.core.options.command import CommandOptions
from edl.core.options.data import DataOptions
from edl.core.options.image import ImageOptions
from edl.core.options.job import JobOptions
from edl.core.options.kubernetes import ClusterOptions, PodOptions
from edl.core.options.model import ModelOptions
from edl.core.options.option import Option, Verb, options_in
from edl.core.options.prediction import PredictionOptions
from edl.core.options.training import TrainingOptions

_SECTIONS: tuple[tuple[type, str], ...] = (
    (ModelOptions, "The model"),
    (DataOptions, "Data and results"),
    (TrainingOptions, "Training"),
    (PredictionOptions, "Predictions"),
    (JobOptions, "The job"),
    (ImageOptions, "The image"),
    (ClusterOptions, "Kubernetes"),
    (PodOptions, "Pods on Kubernetes"),
    (CommandOptions, "This command"),
)

OPTIONS: tuple[Option, ...] = tuple(
    option for group, section in _SECTIONS for option in options_in(group, section)
)

RUNNING: tuple[Option, ...] = tuple(
    option
    for group, section in _SECTIONS
    if group in (JobOptions, ImageOptions, ClusterOptions, PodOptions)
    for option in options_in(group, section)
    if not option.per_run
)
"""The options that say how and where jobs run, whatever they do."""

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}


def options_of(verb: Verb) -> tuple[Option, ...]:
    """Return the options that a command has, in the order of the documentation."""
    return tuple(option for option in OPTIONS if verb in option.verbs)
