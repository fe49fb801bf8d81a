"""TensorFlow as the framework of a worker. Importing this imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edl_worker.core.job import JobDescription
from edl_worker.core.step_engine import ModelEngine, ModelSummary, Profiler
from edl_worker.engines.tensorflow.startup import import_tensorflow


class TensorFlow:
    """The ``Framework`` of Keras models that TensorFlow computes."""

    def prepare(self) -> None:
        """Import TensorFlow, and the code that needs it.

        Raises:
            ImportError: TensorFlow or Keras is not installed, or does not fit this machine.
        """
        import_tensorflow()
        import edl_worker.engines.tensorflow.loading  # noqa: F401  (takes its time here)

    def load(self, job: JobDescription, context: Mapping[str, Any]) -> ModelEngine:
        """Load the model file of a job; see ``Framework``."""
        from edl_worker.engines.tensorflow import loading

        return loading.load(job, context)

    def check(self, job: JobDescription) -> ModelSummary:
        """Check the definitions of a model file; see ``Framework``."""
        from edl_worker.engines.tensorflow import loading

        return loading.check(job)

    def search_space(self, job: JobDescription) -> list[dict[str, Any]]:
        """Return the hyperparameters that the model file asks for; see ``Framework``."""
        from edl_worker.engines.tensorflow.model.search_space import read_search_space

        return read_search_space(job.model)

    def profiler(self, first: int, last: int, send: Callable[[bytes], None]) -> Profiler:
        """Return TensorFlow's profiler for some steps; see ``Framework``."""
        from edl_worker.engines.tensorflow.step_profiler import StepProfiler

        return StepProfiler(first, last, send)
