"""The request to an input pipeline, and the interface of both pipelines."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import recordio
from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch, Blocks
from elasticdl.python.common.constants import Mode


@dataclass(frozen=True, slots=True)
class MinibatchRequest:
    """The minibatches of one task.

    Attributes:
        blocks: yields the records of the task in order, in blocks; called once for each time
            that the pipeline reads its source, usually once.
        seed: fixes every random number of the pipeline.
        skip: number of minibatches to leave out at the start.
        columns: names of the columns if the records are CSV rows, otherwise empty.
    """

    blocks: Blocks
    mode: Mode
    minibatch_size: int
    seed: int
    skip: int
    columns: tuple[str, ...]


class InputPipeline(Protocol):
    """A pipeline that makes minibatches of records with the model file's input function."""

    @property
    def place(self) -> str:
        """The file, line and name of the input function."""
        ...

    def batches(self, request: MinibatchRequest) -> Generator[Batch, None, None]:
        """Return the minibatches, the same ones for the same records and seed.

        Raises:
            EdlError: from ``next``: the data or the input function has an error.
        """
        ...


def reading_error(error: Exception) -> EdlError:
    """Return the error to report for an exception that the reader of the data raised."""
    if isinstance(error, EdlError):
        return error
    if isinstance(error, recordio.ChangedFile):
        return EdlError(
            ErrorCode.DATA_DAMAGED,
            f"{error.uri} has changed since the job started",
            where=error.uri,
            remedy="Put the earlier file back and resume the job, or start a new job on the new "
            "file. Write changed data to a new file while a job reads the old one.",
        )
    if isinstance(error, recordio.UnknownFormat):
        return EdlError(
            ErrorCode.DATA_UNREADABLE,
            str(error),
            where=error.uri,
            remedy="Save a table as CSV, or convert the data: edl data convert --help lists what "
            "it reads. If the name is unusual, give --data-format.",
        )
    if isinstance(error, recordio.LostRecords):
        return EdlError(
            ErrorCode.DATA_NOT_FOUND,
            error.reason,
            where=error.uri,
            remedy="Keep records longer (retention.ms of the topic), and train faster. "
            "--allow-gaps continues without them, and reports what was lost.",
        )
    damaged = not isinstance(error, OSError | recordio.UnreadableFile)
    return EdlError(
        ErrorCode.DATA_DAMAGED if damaged else ErrorCode.DATA_UNREADABLE,
        str(error) or type(error).__name__,
        where=str(getattr(error, "uri", None) or getattr(error, "filename", None) or ""),
        remedy="Write the file again from its source; `edl data inspect FILE` checks it."
        if damaged
        else "Check that the file still exists and that the worker may read it.",
    )
