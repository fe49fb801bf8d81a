"""The class form of a model file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from elasticdl.python.common.constants import Mode


class ElasticDLSpec(ABC):
    """Tells edl how to create a model, its optimizer, loss, metrics and dataset.

    Subclass it in a model file and name the subclass in ``--model-def``. The parameters of
    ``--params`` that the constructor names go to the constructor.

    Args:
        context: what the worker knows about itself: ``job``, ``worker_id``, ``master``.
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
        """A tensor: the loss of a batch."""

    @abstractmethod
    def create_dataset(self, dataset: Any, mode: Mode) -> Any:
        """A ``tf.data.Dataset`` of (features, labels), or of features for prediction."""

    def create_metrics(
        self, mode: Mode = Mode.TRAINING, outputs: Any = None, labels: Any = None
    ) -> dict[str, Any]:
        """Metrics of a batch by name, scalar or per sample; none by default."""
        return {}
