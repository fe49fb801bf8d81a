"""Compares the columns or features of all data of a job with those that its model knows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf.message import DecodeError

from edl_master.adapters.data import DataFile, DataSet
from edl_master.adapters.data_ranges import measure_fields
from edl_master.core.effects import LogEvent, Severity
from edl_master.core.settings import JobType
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import model_pb2
from edl_runtime.model.trained_model import MAX_DESCRIPTION_BYTES, TRAINED_MODEL, read_description
from edl_runtime.public_settings import without_passwords
from recordio.description import (
    DataDescription,
    Form,
    compare,
    compare_classes,
    description_from_json,
)
from recordio.number_ranges import compare_ranges
from recordio.storage.files import local_path
from recordio.storage.stores import filesystem, is_uri

log = logging.getLogger(__name__)

_TRAINING = "the training data"
_SHOWN = 5
_MAX_BYTES = MAX_DESCRIPTION_BYTES // 2
"""Limit on what is written into a trained model: its description must stay readable."""


@dataclass(frozen=True, slots=True)
class ComparedData:
    """The fields that all data of a job has.

    Attributes:
        description: of the data that the model is trained on; None if it is not known.
        notes: what users should know of the differences between files.
    """

    description: DataDescription | None
    notes: tuple[LogEvent, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in the order in which the model file gets them; empty if there are none."""
        described = self.description
        return described.names if described and described.form is Form.TABLE else ()

    @property
    def content(self) -> bytes:
        """The description as it is written into a trained model; empty if there is none."""
        described = self.description
        content = json.dumps(described.as_json()).encode() if described else b""
        return content if len(content) <= _MAX_BYTES else b""


def compare_data(
    type_: JobType,
    data: DataSet,
    validation: DataSet | None,
    trained_model: str,
    init_from: str = "",
) -> ComparedData:
    """Compare the fields of all files with each other, and with those of a trained model.

    Args:
        trained_model: the model of an evaluation or a prediction.
        init_from: the model that a training begins with, whose order of columns the data gets.

    Raises:
        EdlError: SHAPE_MISMATCH: a file lacks fields, or has them with another type.
    """
    known = _read_known(trained_model) if trained_model else None
    notes: list[LogEvent] = []
    if known is not None:
        lacks = type_ is JobType.PREDICT
        notes += _compare_files(known, data.files, _TRAINING, has_labels=not lacks, may_lack=lacks)
        notes += _compare_numbers(known, data, _TRAINING, may_lack=lacks)
        return ComparedData(known, tuple(notes))
    described = [(file, file.description) for file in data.files if file.description]
    if not described:
        return ComparedData(None)
    first, known = described[0]
    # Examples of some files may lack features that have a default.
    lacks = known.form is Form.EXAMPLES
    source = without_passwords(first.uri)
    initial = _read_known(init_from) if init_from else None
    if initial is not None and (ordered := known.in_order_of(initial)) != known:
        known, source = ordered, "the model that the training begins with"
    elif initial is not None and set(initial.names) != set(known.names):
        notes.append(_other_fields(initial, known))
    notes += _compare_files(known, data.files, source, may_lack=lacks, may_differ=not lacks)
    for _, other in described[1:]:
        known = known.merge(other)
    known = replace(known, ranges=measure_fields(data))
    if initial is not None:
        notes += _compare_numbers(
            initial, data, "the data of the model that the training begins with"
        )
    if validation is not None:
        notes += _compare_files(known, validation.files, _TRAINING)
        notes += _compare_numbers(known, validation, _TRAINING)
    return ComparedData(known, tuple(notes))


def _compare_numbers(
    known: DataDescription, data: DataSet, source: str, *, may_lack: bool = False
) -> list[LogEvent]:
    """Return warnings of columns whose numbers have another unit than those of the known data."""
    if not known.ranges:
        return []
    found = measure_fields(data)
    word = "column" if known.form is Form.TABLE else "feature"
    name = data.names[0] + (f" and {len(data.names) - 1} more files" if data.names[1:] else "")
    return [
        LogEvent("DataDiffers", f"{name}: the {word} {note}", Severity.WARNING)
        for note in compare_ranges(known.ranges, found, source, may_lack=may_lack)
    ]


def _other_fields(initial: DataDescription, known: DataDescription) -> LogEvent:
    was, now = (
        ", ".join([repr(name) for name in one.names if name not in other.names][:_SHOWN])
        for one, other in ((initial, known), (known, initial))
    )
    message = (
        "The model that the training begins with was trained on other data: only that has "
        f"{was or 'nothing'}, and only this has {now or 'nothing'}."
    )
    return LogEvent("DataDiffers", message, Severity.WARNING)


def compare_file(known: DataDescription, file: DataFile, source: str) -> list[LogEvent]:
    """Compare the fields of one more file with those of the data.

    Args:
        source: what the known fields are from, for messages.

    Raises:
        EdlError: SHAPE_MISMATCH: it lacks fields, or has them with another type.
    """
    lacks = known.form is Form.EXAMPLES  # some of them may have a default
    return _compare_files(known, [file], source, may_lack=lacks, may_differ=not lacks)


def _compare_files(
    known: DataDescription,
    files: Iterable[DataFile],
    source: str,
    *,
    has_labels: bool = True,
    **may: bool,
) -> list[LogEvent]:
    found: dict[tuple[str, bool], list[str]] = {}
    for file in files:
        if file.description is None:
            continue
        name = without_passwords(file.uri)
        compared = compare(known, file.description, source, has_labels=has_labels, **may)
        if has_labels and not compared.problem:
            numbered = compare_classes(known, file.description, source)
            compared = numbered if numbered.problem else compared
        if compared.problem:
            raise EdlError(
                ErrorCode.SHAPE_MISMATCH,
                f"{name}: {compared.problem}",
                where=name,
                remedy=compared.remedy,
            )
        for note in compared.notes:
            found.setdefault((note, compared.warns), []).append(name)
    return [
        LogEvent(
            "DataDiffers",
            f"{names[0]}{f' and {len(names) - 1} more files' if names[1:] else ''}: {note}.",
            Severity.WARNING if warns else Severity.INFO,
        )
        for (note, warns), names in found.items()
    ]


def _read_known(model: str) -> DataDescription | None:
    """Return the fields that a model was trained on; None if it does not say.

    What is wrong with the model itself, the workers say when they load it.
    """
    try:
        if is_uri(model):
            system, path = filesystem(f"{model.rstrip('/')}/{TRAINED_MODEL}")
            content = bytes(system.cat_file(path, start=0, end=MAX_DESCRIPTION_BYTES))
        else:
            content = read_description(Path(local_path(model)))
        data = model_pb2.TrainedModel.FromString(content).data
        return description_from_json(json.loads(data)) if data else None
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        log.warning("the description of the training data in %s cannot be read: %s", model, error)
    except Exception as error:  # stores raise errors of many libraries
        log.warning("%s cannot be read: %s", model, error)
    return None
