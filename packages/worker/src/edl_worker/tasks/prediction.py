"""Prediction tasks: one ``tf.Example`` for each input record, in order.

It holds the outputs of the model, and the features of the record that the job keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import recordio
import recordio.example
from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.core.outputs import named_outputs
from edl_worker.core.tasks import Lease, TaskResult
from edl_worker.tasks.lookahead import Lookahead
from edl_worker.tasks.postprocess import postprocess
from edl_worker.tasks.task_errors import place, write_error
from recordio.storage.stores import is_uri


@dataclass(frozen=True, slots=True)
class Postprocessing:
    """The processing of the model's outputs before they are written.

    Attributes:
        kept: the features to write next to the outputs, record by record.
        postprocess: argmax, sigmoid or softmax; empty: the outputs stay as they are.
    """

    kept: Iterator[Mapping[str, Any]]
    postprocess: str = ""


def predict(
    infer: Callable[[Batch], Any],
    output_names: Sequence[str],
    lease: Lease,
    batches: Lookahead[Batch],
    postprocessing: Postprocessing,
    before_minibatch: Callable[[int, Batch], None],
) -> TaskResult:
    """Write the predictions of a task to its part file, which appears whole or not at all.

    Args:
        output_names: names for the outputs of a model that returns several as a list.
        before_minibatch: called before each one; may raise.

    Raises:
        EdlError: not exactly one prediction per record, or the part cannot be written.
    """
    wanted = lease.record_count
    minibatches = predictions = 0
    try:
        _make_parent(lease.part_path)
        with recordio.Writer(lease.part_path) as writer:
            while (batch := batches.take()) is not None:
                before_minibatch(minibatches, batch)
                minibatches += 1
                predictions += batch.size
                if predictions > wanted:
                    break
                outputs = select_outputs(infer(batch), output_names, postprocessing.postprocess)
                # The shorter comes first, so that nothing is taken from the other in vain.
                for record, kept in zip(
                    rows(outputs, batch.size), postprocessing.kept, strict=False
                ):
                    writer.write(recordio.example.encode(_with_features(record, kept)))
            if predictions > wanted or writer.records != wanted:
                raise _count_error(lease, wanted, max(predictions, writer.records))
    except OSError as error:
        raise write_error(error, lease.part_path) from error
    return TaskResult(records=predictions, minibatches=minibatches, examples=predictions)


def select_outputs(outputs: Any, output_names: Sequence[str], function: str) -> dict[str, Any]:
    """Return the values that a job writes for the outputs of a model, by name.

    Raises:
        EdlError: USAGE, an output is no input for the function, which is that of ``--postprocess``.
    """
    return {
        name: postprocess(name, value, function)
        for name, value in named_outputs(outputs, output_names).items()
    }


def rows(outputs: Mapping[str, Any], size: int) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the outputs of a minibatch record by record, flattened to lists of numbers.

    Raises:
        EdlError: an output does not have one row per record.
    """
    arrays = {}
    for name, value in outputs.items():
        array = np.asarray(value)
        if array.ndim == 0 or array.shape[0] != size:
            raise EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"output {name} of the model has shape {array.shape} for a minibatch of {size}",
                where=f"output {name}",
                remedy="Let the model return one row per record: the first dimension of each "
                "output is the minibatch.",
            )
        arrays[name] = array.reshape(size, -1)
    for index in range(size):
        yield {name: array[index] for name, array in arrays.items()}


def _with_features(outputs: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    check_kept(outputs, kept)
    return {**kept, **outputs}


def check_kept(outputs: Iterable[str], kept: Iterable[str]) -> None:
    """Check that no feature that is kept has the name of an output.

    Raises:
        EdlError: MODEL_CONTRACT, one has.
    """
    if twice := sorted({*outputs} & {*kept}):
        raise EdlError(
            ErrorCode.MODEL_CONTRACT,
            f"the feature {twice[0]} cannot be kept: an output of the model has the same name",
            where=f"--keep {','.join(kept)}",
            remedy="Rename the feature in the data, or the output in the model.",
        )


def _count_error(lease: Lease, wanted: int, got: int) -> EdlError:
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"{wanted} records gave {'more than ' if got > wanted else ''}"
        f"{min(got, wanted) if got > wanted else got} predictions; "
        "each record must give exactly one",
        where=place(lease),
        remedy="In mode PREDICTION the dataset function (or input function) must keep every "
        "record: no filter, batch, repeat or flat_map.",
    )


def _make_parent(path: str) -> None:
    if not is_uri(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
