"""The first minibatch of a job's data, before there is any task: the model is tried on it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

import recordio
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2
from edl_worker.contract import Batch, ModelFile
from elasticdl.python.common.constants import Mode


def first_batch(file: ModelFile, job: job_pb2.JobSpec, mode: Mode, minibatch_size: int) -> Batch:
    """The first minibatch that the model file makes of the job's data.

    Raises:
        EdlError: there is no data, it cannot be read, or the model file makes nothing of it.
    """
    for uri in _files(job.data):
        source = recordio.open_source(uri, format=job.data_format or None)
        batches = file.batches(
            lambda source=source: source.read_blocks(0, minibatch_size),
            mode=mode,
            minibatch_size=minibatch_size,
            seed=0,
            columns=getattr(source, "columns", None),
        )
        batch = next(batches, None)
        close = getattr(batches, "close", None)
        if close is not None:
            close()
        if batch is not None:
            return batch
    raise EdlError(
        error_pb2.DATA_EMPTY,
        f"the input function made no minibatch of the first records of {job.data}",
        where=job.data,
        remedy="See that the data is not empty, and that the input function keeps its records.",
    )


def _files(data: str) -> Iterator[str]:
    """The files of a data argument, in order: commas between globs, directories and files."""
    for pattern in filter(None, (part.strip() for part in data.split(","))):
        if "://" in pattern and not pattern.startswith("file://"):
            yield from _remote_files(pattern)
            continue
        path = pattern.removeprefix("file://")
        if os.path.isdir(path):
            path = os.path.join(glob.escape(path), "*")
        found = sorted(glob.glob(path)) if glob.has_magic(path) else [path]
        yield from (name for name in found if not os.path.isdir(name))


def _remote_files(pattern: str) -> Iterator[str]:
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(pattern)
    if filesystem.isdir(path):
        path = f"{path.rstrip('/')}/*"
    found = sorted(filesystem.glob(path)) if glob.has_magic(path) else [path]
    yield from (filesystem.unstrip_protocol(name) for name in found)
