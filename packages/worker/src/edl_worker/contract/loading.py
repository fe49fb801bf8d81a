"""From a choice to a loaded model file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.python.common.constants import Mode

from edl_worker.contract.choice import ModelChoice
from edl_worker.contract.model_file import ModelFile


def load(
    choice: ModelChoice,
    *,
    context: Mapping[str, Any] | None = None,
    purpose: Mode = Mode.TRAINING,
    seed: int | None = None,
) -> ModelFile:
    """Finds the model, creates it with its optimizer and checks the contract.

    Args:
        context: for ``ElasticDLSpec(context=...)``: ``job``, ``worker_id``, ``master``.
        purpose: what the job does; a prediction needs neither loss nor optimizer, an
            evaluation no optimizer.
        seed: fixes the initial values.

    Raises:
        ContractErrors: all errors found.
    """
    raise NotImplementedError
