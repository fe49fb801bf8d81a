"""A trained model that is ready to predict records, by the worker's engine."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import recordio
from edl_proto.errors import EdlError, ErrorCode
from edl_serve.instances import EncodedInstances
from edl_worker.codec.jobs import parse_job
from edl_worker.engines.tensorflow.framework import TensorFlow
from edl_worker.tasks.loaded_model import LoadedModel, load
from edl_worker.tasks.prediction import select_outputs
from edl_worker.tasks.task_errors import explain
from edl_worker.trained_model.directory import open_directory
from elasticdl.python.common.constants import Mode
from recordio.description import DataDescription, description_from_json
from recordio.formats.csvfile import join_row


class Predictor(Protocol):
    """A model that predicts records."""

    @property
    def data(self) -> DataDescription | None:
        """The data that it was trained on; None: not known."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Facts about the model, as JSON-able values."""

    @property
    def version(self) -> int:
        """The number of the release; 1 for a model that is none."""

    def prepare(self) -> None:
        """Import the framework, which takes seconds."""

    def predict(self, records: EncodedInstances) -> list[dict[str, Any]]:
        """Return the outputs of the model for each record, by name.

        Raises:
            EdlError: the model file does not take the records, or the model cannot be loaded.
        """


class ServedModel:
    """A trained model; one thread at a time may use it.

    Args:
        place: a folder that ``edl train`` wrote, or its URI.
        postprocess: argmax, sigmoid or softmax; empty: the outputs stay as they are.
        batch_size: records that are computed at once.

    Attributes:
        data: what it was trained on; None: not known.
        about: facts about the model, as JSON-able values.
        version: 1.

    Raises:
        EdlError: it is no trained model.
    """

    version = 1

    def __init__(self, place: str, postprocess: str = "", batch_size: int = 32) -> None:
        description = open_directory(place).description
        self.data = _describe(description.data)
        self.about: Mapping[str, Any] = {
            "model_def": description.model_def,
            "created_at": description.created_at,
            "records_trained": description.records_trained,
            "metrics": dict(description.metrics),
            "versions": dict(description.versions),
        }
        self._place = place
        self._postprocess = postprocess
        self._batch_size = batch_size
        self._framework = TensorFlow()
        self._loaded: LoadedModel | None = None

    def prepare(self) -> None:
        """Import the framework, which takes seconds."""
        self._framework.prepare()

    def predict(self, records: EncodedInstances) -> list[dict[str, Any]]:
        """Return the outputs of the model for each record, by name.

        The first call loads the model: its shapes are those of these records.

        Raises:
            EdlError: the model file does not take the records, or the model cannot be loaded.
        """
        model = self._loaded or self._load(records)
        found: list[dict[str, Any]] = []
        with contextlib.ExitStack() as stack:
            batches = self._batches(model, records)
            stack.callback(getattr(batches, "close", lambda: None))
            for batch in batches:
                try:
                    outputs = model.predict(batch)
                except Exception as error:
                    raise explain(
                        error, doing="the model raised", where="instances", zoo=model.zoo
                    ) from error
                named = select_outputs(outputs, model.output_names, self._postprocess)
                arrays = {name: np.asarray(value) for name, value in named.items()}
                found += (
                    {name: array[at].tolist() for name, array in arrays.items()}
                    for at in range(batch.size)
                )
        if len(found) != len(records.contents):
            raise EdlError(
                ErrorCode.MODEL_CONTRACT,
                f"{len(records.contents)} instances gave {len(found)} predictions",
                where=model.engine.summarize().input_place,
                remedy="In mode PREDICTION the input function must keep every record: no filter, "
                "batch, repeat or flat_map.",
            )
        self._loaded = model
        return found

    def _batches(self, model: LoadedModel, records: EncodedInstances) -> Iterator[Any]:
        return model.engine.source.batches(
            lambda: iter([list(records.contents)]),
            mode=Mode.PREDICTION,
            minibatch_size=self._batch_size,
            seed=0,
            columns=records.columns or None,
        )

    def _load(self, records: EncodedInstances) -> LoadedModel:
        with tempfile.TemporaryDirectory(prefix="edl-serve-") as folder:
            place = _write(records, Path(folder))
            spec = {
                "name": "serve",
                "type": "PREDICT",
                "trained_model": self._place,
                "data": [place],
                "minibatch_size": self._batch_size,
                "prediction": {"postprocess": self._postprocess},
            }
            context = {"job": "serve", "worker_id": 0, "master": ""}
            try:
                return load(parse_job(json.dumps(spec)), context, self._framework)
            except EdlError as error:  # its place is a file that is gone when it is read
                error.what = error.what.replace(place, "the request")
                error.where = error.where.replace(place, "the request")
                raise


def _write(records: EncodedInstances, folder: Path) -> str:
    """Write records into a file as a job reads them, and return its path."""
    if records.columns:
        place = folder / "instances.csv"
        place.write_bytes(b"\n".join([join_row(records.columns), *records.contents, b""]))
        return str(place)
    place = folder / "instances.recordio"
    with recordio.Writer(str(place)) as writer:
        for record in records.contents:
            writer.write(record)
    return str(place)


def _describe(data: bytes) -> DataDescription | None:
    try:
        return description_from_json(json.loads(data)) if data else None
    except (ValueError, KeyError, TypeError):
        return None  # of a later version


def unpack(prediction: Mapping[str, Any]) -> Any:
    """Return the output of a model with one output alone, and those of others by name."""
    values: Sequence[Any] = list(prediction.values())
    return values[0] if len(values) == 1 else dict(prediction)
