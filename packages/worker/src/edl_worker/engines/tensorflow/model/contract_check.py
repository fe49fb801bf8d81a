"""All errors of a model file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edl_proto.errors import EdlError
from edl_worker.core.batch import Batch
from edl_worker.core.job import ModelReference
from edl_worker.engines.tensorflow.model.loader import load_model_file
from edl_worker.engines.tensorflow.model.model_file import ModelFile
from edl_worker.model_file.errors import ContractErrors
from elasticdl.python.common.constants import Mode

_SAMPLE = 32


def check_model_file(
    reference: ModelReference,
    *,
    purpose: Mode = Mode.TRAINING,
    sample: Sequence[bytes] = (),
    columns: Sequence[str] | None = None,
) -> list[EdlError]:
    """Return all errors of a model file; empty if it can be used.

    Args:
        purpose: what the job would do.
        sample: some records; with them shapes are checked and subclassed models are built.
        columns: names of the columns if the records are CSV rows.
    """
    try:
        model_file = load_model_file(reference, purpose=purpose)
    except ContractErrors as error:
        return list(error.errors)
    if not sample:
        return []
    records = list(sample[:_SAMPLE])

    def first() -> Batch:
        batches = model_file.batches(
            lambda: iter([records]), mode=purpose, minibatch_size=_SAMPLE, seed=0, columns=columns
        )
        return next(batches)

    return _build_errors(model_file, first)


def _build_errors(model_file: ModelFile, first: Callable[[], Batch]) -> list[EdlError]:
    try:
        model_file.build(first())
    except ContractErrors as error:
        return list(error.errors)
    except EdlError as error:
        return [error]
    except StopIteration:
        pass  # the input function dropped all of these records
    return []
