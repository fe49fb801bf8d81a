"""Everything that turns a model file into something that trains.

Importing this package imports TensorFlow.
"""

from __future__ import annotations

from edl_worker.contract.batch import Batch
from edl_worker.contract.checking import check, run_check
from edl_worker.contract.choice import ModelChoice
from edl_worker.contract.errors import ContractErrors
from edl_worker.contract.loading import load
from edl_worker.contract.metrics import Metrics
from edl_worker.contract.model_file import ModelFile

__all__ = [
    "Batch",
    "ContractErrors",
    "Metrics",
    "ModelChoice",
    "ModelFile",
    "check",
    "load",
    "run_check",
]
