"""Loads the Keras models of jobs, as a worker does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl_worker.core.job import JobDescription
from edl_worker.engines.tensorflow.framework import TensorFlow
from edl_worker.tasks import loaded_model
from edl_worker.tasks.loaded_model import LoadedModel


def load(job: JobDescription, context: Mapping[str, Any]) -> LoadedModel:
    return loaded_model.load(job, context, TensorFlow())
