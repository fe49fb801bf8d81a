"""Warns of a job that trains in the order of its data, where that is an order by label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import recordio
from edl_proto.errors import EdlError
from edl_worker.core.job import JobDescription
from edl_worker.core.step_engine import BatchSource
from elasticdl.python.common.constants import Mode

_PLACES = 8
_RECORDS_PER_PLACE = 32

_MIXED_SHARE = 0.5
"""Where records are in random order, those of a place have nearly all of the variety of the data.
A place with less than this share of it is in a run of one label."""

_SHUFFLE = (
    "Leave --no-shuffle out, or write the data in a random order: edl data convert --shuffle."
)


def warn_of_sorted_labels(source: BatchSource, job: JobDescription) -> tuple[str, ...]:
    """Return a warning if a job keeps the order of its data, and labels come in long runs.

    It looks at some places that are spread over all the data; labels that are no classes, and data
    that cannot be read, are left to the tasks.
    """
    if job.training.shuffle or not job.data:
        return ()
    try:
        places = [found for found in _labels_of_places(source, job) if found is not None]
    except (EdlError, recordio.RecordError, OSError):
        return ()
    if len(places) < 2:
        return ()
    classes, numbered = np.unique(np.concatenate(places), return_inverse=True)
    if not 1 < len(classes) <= len(numbered) // 2:
        return ()
    parts = np.split(numbered, np.cumsum([len(found) for found in places])[:-1])
    if np.mean([_variety(part) for part in parts]) >= _MIXED_SHARE * _variety(numbered):
        return ()
    at_once = np.mean([len(np.unique(part)) for part in parts])
    return (
        f"the labels come in long runs, and --no-shuffle keeps that order: of {len(classes)} "
        f"labels in {len(parts)} places of the data, {_RECORDS_PER_PLACE} records in a row have "
        f"{at_once:.1f} on average. The model may learn little of it. {_SHUFFLE}",
    )


def _variety(labels: npt.NDArray[Any]) -> float:
    """Return how probable it is that two records have different labels."""
    return 1.0 - float(np.sum((np.bincount(labels) / len(labels)) ** 2))


def _labels_of_places(
    source: BatchSource, job: JobDescription
) -> Iterator[npt.NDArray[Any] | None]:
    uris = recordio.expand(list(job.data))
    files = [uris[at] for at in _spread(len(uris), min(len(uris), _PLACES))]
    each = -(-_PLACES // len(files))
    for uri in files:
        file = recordio.open_source(uri, format=job.data_format or None)
        last = max(0, file.count() - _RECORDS_PER_PLACE)
        for start in _spread(last + 1, min(each, last + 1)):
            yield _labels_of(source, file, start)


def _spread(count: int, places: int) -> Sequence[int]:
    """Return so many of the numbers below ``count``, the first and the last among them."""
    return np.linspace(0, count - 1, places).astype(int).tolist() if places else ()


def _labels_of(source: BatchSource, file: recordio.Source, start: int) -> npt.NDArray[Any] | None:
    """Return the classes of records in a row; None if they are no classes."""
    stop = min(start + _RECORDS_PER_PLACE, file.count())
    batches = source.batches(
        source.blocks(file.uri, start, stop, lambda: file.read_blocks(start, stop)),
        mode=Mode.TRAINING,
        minibatch_size=_RECORDS_PER_PLACE,
        seed=0,
        columns=file.columns,
    )
    batch = next(batches, None)
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    if batch is None or not hasattr(batch.labels, "__array__"):
        return None
    labels = np.asarray(batch.labels)
    labels = labels.reshape(len(labels), -1)
    if labels.shape[1] > 1:  # one-hot
        is_one_hot = labels.dtype.kind in "biuf" and (np.sort(labels, axis=1)[:, :-1] == 0).all()
        return np.argmax(labels, axis=1).astype(str) if is_one_hot else None
    return labels[:, 0].astype(str)
