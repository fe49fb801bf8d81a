"""The base class of what model files of ElasticDL do with predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class BasePredictionOutputsProcessor(ABC):
    """Processes the predictions of one worker."""

    @abstractmethod
    def process(self, predictions: Any, worker_id: int) -> None:
        """Process the outputs of the model for one minibatch, as it returned them."""
