"""``ElasticDLSpec``: a model file whose definitions are methods of one class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from elasticdl.python.common.constants import Mode


class ElasticDLSpec(ABC):
    """Defines a model with its optimizer, loss, metrics and dataset.

    Subclass it in a model file and name the subclass with ``--model-def``. Values of ``--params``
    go to the parameters of the constructor and of the methods that have their names.

    Args:
        context: ``job``, ``worker_id`` and ``master`` of the worker that loads the model file.
    """

    def __init__(self, context: Mapping[str, Any] | None = None) -> None:
        self._context = context

    @abstractmethod
    def create_model(self) -> Any:
        """A Keras model, functional or subclassed."""

    @abstractmethod
    def create_optimizer(self, lr: float = 0.1) -> Any:
        """A Keras optimizer."""

    @abstractmethod
    def create_loss(self, outputs: Any = None, labels: Any = None) -> Any:
        """The loss of a batch: a floating scalar, or one value per sample."""

    @abstractmethod
    def create_dataset(self, dataset: Any, mode: Mode) -> Any:
        """A ``tf.data.Dataset`` of (features, labels), or of features for prediction."""

    def create_metrics(
        self, mode: Mode = Mode.TRAINING, outputs: Any = None, labels: Any = None
    ) -> dict[str, Any]:
        """Metrics of a batch by name: scalars, or one value per sample. None by default."""
        return {}
