"""Statistics of features that a generator puts into variables, or the default of the model file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)
_MODEL_INPUTS = "_model_inputs"


class AnalysisEnvTemplate:
    """Names of the variables, to be formatted with the name of a feature."""

    MIN_ENV = "_{}_min"
    MAX_ENV = "_{}_max"
    AVG_ENV = "_{}_avg"
    STDDEV_ENV = "_{}_stddev"
    BUCKET_BOUNDARIES_ENV = "_{}_boundaries"
    DISTINCT_COUNT_ENV = "_{}_distinct_count"
    VOCABULARY_ENV = "_{}_vocab"


def get_min(feature_name: str, default_value: Any) -> Any:
    """Return the smallest value of a numeric feature."""
    return _read(AnalysisEnvTemplate.MIN_ENV, feature_name, float, default_value)


def get_max(feature_name: str, default_value: Any) -> Any:
    """Return the largest value of a numeric feature."""
    return _read(AnalysisEnvTemplate.MAX_ENV, feature_name, float, default_value)


def get_avg(feature_name: str, default_value: Any) -> Any:
    """Return the mean of a numeric feature."""
    return _read(AnalysisEnvTemplate.AVG_ENV, feature_name, float, default_value)


def get_stddev(feature_name: str, default_value: Any) -> Any:
    """Return the standard deviation of a numeric feature."""
    return _read(AnalysisEnvTemplate.STDDEV_ENV, feature_name, float, default_value)


def get_bucket_boundaries(feature_name: str, default_value: Any) -> Any:
    """Return the boundaries, in order, that divide a numeric feature into buckets."""
    template = AnalysisEnvTemplate.BUCKET_BOUNDARIES_ENV
    return _read(template, feature_name, _boundaries, default_value)


def get_distinct_count(feature_name: str, default_value: Any) -> Any:
    """Return the number of different values of a feature."""
    return _read(AnalysisEnvTemplate.DISTINCT_COUNT_ENV, feature_name, int, default_value)


def get_vocabulary(feature_name: str, default_value: Any) -> Any:
    """Return the path of a file with the values of a feature, one in each line."""
    return _read(AnalysisEnvTemplate.VOCABULARY_ENV, feature_name, str, default_value)


def declare_model_inputs(*names: str) -> Callable[[_Class], _Class]:
    """Note the names of a model class's inputs in ``_model_inputs``."""
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("declare_model_inputs takes the names of the inputs, at least one")

    def declare(cls: _Class) -> _Class:
        setattr(cls, _MODEL_INPUTS, list(names))
        return cls

    return declare


def _read(template: str, feature: str, parse: Callable[[str], Any], default: Any) -> Any:
    text = os.environ.get(template.format(feature))
    return default if text is None else parse(text)


def _boundaries(text: str) -> list[float]:
    return sorted({float(number) for number in text.split(",")})
