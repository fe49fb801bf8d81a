"""Loads model files: what workers and `edl zoo check` import from this package.

Importing this package imports TensorFlow.
"""

from __future__ import annotations

from edl_worker.core.job import ModelReference
from edl_worker.model_file.batch import Batch
from edl_worker.model_file.contract_check import check_model_file
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.loader import load_model_file
from edl_worker.model_file.metrics import EvaluationMetrics
from edl_worker.model_file.model_file import ModelFile

__all__ = [
    "Batch",
    "ContractErrors",
    "EvaluationMetrics",
    "ModelFile",
    "ModelReference",
    "check_model_file",
    "load_model_file",
]
