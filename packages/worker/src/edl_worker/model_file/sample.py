"""The first minibatch of a job's data, for the dry run of the model before the first task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import recordio
from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.batch import Batch
from edl_worker.core.job import JobDescription
from edl_worker.core.step_engine import BatchSource
from edl_worker.model_file.bad_records import Records, explain_bad_records, place_by_number
from edl_worker.model_file.input_pipeline import reading_error
from edl_worker.model_file.row_order import RowOrder, find_order, own_reader_error
from elasticdl.python.common.constants import Mode

_FIRST_FILE = "the first file of the stream"


def first_batch(file: BatchSource, job: JobDescription, mode: Mode, minibatch_size: int) -> Batch:
    """Return the first minibatch that the model file makes of the job's data.

    Raises:
        EdlError: there is no data, it cannot be read, or the input function drops all of it.
    """
    try:
        for records in first_records(file, job, minibatch_size):
            batch = _first_of(records, file, mode, minibatch_size)
            if batch is not None:
                return batch
    except recordio.NoSuchData as error:
        raise EdlError(
            ErrorCode.DATA_NOT_FOUND,
            str(error),
            where=", ".join(job.data),
            remedy="Check --data as workers see it: a path must be the same on every machine.",
        ) from error
    except recordio.RecordError as error:
        raise reading_error(error) from error
    raise EdlError(
        ErrorCode.DATA_EMPTY,
        f"the input function returned no minibatch for the first records of {', '.join(job.data)}",
        where=", ".join(job.data),
        remedy="Check that the data is not empty and that the input function keeps its records.",
    )


def first_records(file: BatchSource, job: JobDescription, count: int) -> Iterator[Records]:
    """Yield the first records of each file of a job's data, or of a stream.

    Raises:
        RecordError: there is no data, or it cannot be opened.
        EdlError: the model file cannot read the columns in their order.
    """
    if job.sample and not file.reads_records:
        records = list(job.sample[:count])
        order = find_order(job.columns, job.columns)
        yield Records(0, lambda: iter([records]), order, place_by_number(_FIRST_FILE))
        return
    for uri in recordio.expand(list(job.data)):
        source = recordio.open_source(uri, format=job.data_format or None)
        order = find_order(source.columns or (), job.columns)
        if file.reads_records and order.places is not None:
            raise own_reader_error(source.uri, order)
        yield _first_records(source, order, file, count)


def _first_records(
    source: recordio.Source, order: RowOrder, file: BatchSource, count: int
) -> Records:
    # Records start at offset 0, so that no index is needed; CSV rows start after the header.
    hint = None if source.format == "csv" else (0, 0)
    stop = min(count, source.count()) if file.reads_records else count
    read = file.blocks(source.uri, 0, stop, lambda: source.read_blocks(0, count, hint=hint))
    own = file.reads_records
    place = place_by_number(source.uri) if own else partial(source.place, hint=(0, 0))
    return Records(0, read, order, place)


def _first_of(records: Records, file: BatchSource, mode: Mode, minibatch_size: int) -> Batch | None:
    run = partial(
        file.batches,
        mode=mode,
        minibatch_size=minibatch_size,
        seed=0,
        columns=records.order.names or None,
    )
    blocks = partial(records.order.arrange, records.read)
    with closing(explain_bad_records(run, run, blocks, lambda: [records])) as batches:
        return next(batches, None)
