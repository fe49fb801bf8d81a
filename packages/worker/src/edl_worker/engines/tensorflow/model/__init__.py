"""Keras models of model files: loading them, and checking that their parts fit together."""

from __future__ import annotations

from edl_worker.engines.tensorflow.model.contract_check import check_model_file
from edl_worker.engines.tensorflow.model.loader import load_model_file
from edl_worker.engines.tensorflow.model.metrics import EvaluationMetrics
from edl_worker.engines.tensorflow.model.model_file import ModelFile

__all__ = ["EvaluationMetrics", "ModelFile", "check_model_file", "load_model_file"]
