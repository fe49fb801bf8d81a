"""A trained model's directory, as evaluation, prediction and --init-from read it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.trained_model import (
    KERAS_MODEL,
    MODEL_ZOO,
    PARAMETERS,
    TRAINED_MODEL,
    check_file_name,
    check_zoo,
    file_of,
    read_description,
)
from edl_worker.codec.jobs import decode_trained_model
from edl_worker.core.job import ModelReference
from edl_worker.core.layer_state import LayerState
from edl_worker.core.model_description import TrainedModelDescription
from edl_worker.trained_model import layer_states, weight_files
from recordio.errors import RecordError, UnreadableFile
from recordio.storage.files import local_path
from recordio.storage.store_errors import reason_of, remedy_of
from recordio.storage.stored_file import retry_transient
from recordio.storage.stores import filesystem, is_uri

DESCRIPTION = TRAINED_MODEL
KERAS = KERAS_MODEL
SAVED_MODEL = "saved_model"
LITERT = "model.tflite"
ONNX = "model.onnx"

_until_exit = ExitStack()
"""Copies of trained models whose code this process has loaded."""
atexit.register(_until_exit.close)


@dataclass(frozen=True, slots=True)
class TrainedModelDirectory:
    """A directory that a training job wrote, on this machine."""

    path: Path
    description: TrainedModelDescription

    def model_reference(self, override: ModelReference) -> ModelReference:
        """Return which model this is; the job's own options take precedence."""
        mine = self.description
        options = ModelReference(
            model_zoo=str(self.path / MODEL_ZOO),
            model_def=mine.model_def,
            params=mine.model_def_params,
            input_fn=mine.input_function,
            dataset_fn=mine.dataset_fn,
            loss=mine.loss,
            optimizer=mine.optimizer,
            eval_metrics_fn=mine.eval_metrics_fn,
            feature_columns=mine.feature_columns,
            label_columns=mine.label_columns,
        )
        return options.override_with(override)

    def read_layer_states(self) -> tuple[LayerState, ...]:
        """Return the state of layers that is not among the values; none in older models.

        Raises:
            EdlError: it is missing or damaged, or is not the model's own.
        """
        name = self.description.layer_states_filename
        return layer_states.read(self._file(name)) if name else ()

    def read_values(self) -> weight_files.NamedValues:
        """Return the values, by name.

        Raises:
            EdlError: they are missing or damaged, or are not the model's own.
        """
        return weight_files.read(self._file(self.description.params_filename or PARAMETERS))

    def _file(self, name: str) -> Path:
        try:
            return file_of(self.path, name)
        except ValueError as error:
            raise EdlError(
                ErrorCode.FORBIDDEN,
                f"the trained model is refused: {error}",
                where=str(self.path),
                remedy="Do not use the model unless you know who made it, and why.",
            ) from None


def open_directory(uri: str) -> TrainedModelDirectory:
    """Open a trained model; a remote one is copied to this machine first.

    Raises:
        EdlError: there is none, or it is damaged.
    """
    path = local_copy(uri, _until_exit)
    try:
        description = decode_trained_model(read_description(path))
        check_zoo(description.model_zoo)
        check_file_name(description.params_filename)
        check_file_name(description.layer_states_filename)
        return TrainedModelDirectory(path, description)
    except (FileNotFoundError, NotADirectoryError):
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"{uri} is not a trained model: there is no {DESCRIPTION} in it",
            where=uri,
            remedy="Name a directory that edl train wrote as its --output.",
        ) from None
    except (ValueError, OSError) as error:
        raise EdlError(
            ErrorCode.CHECKPOINT_DAMAGED,
            f"{DESCRIPTION} cannot be read: {error}",
            where=f"{uri}/{DESCRIPTION}",
            remedy="Copy the trained model again, or train it again.",
        ) from None


def local_copy(uri: str, copies: ExitStack) -> Path:
    """Return the path of what a URI names; of what is in a store, a copy.

    Args:
        copies: deletes the copy when it is closed.
    """
    if not is_uri(uri):
        return Path(local_path(uri))
    folder = tempfile.TemporaryDirectory(prefix="edl-trained-", ignore_cleanup_errors=True)
    copy = Path(copies.enter_context(folder)) / (uri.rstrip("/").rsplit("/", 1)[-1])

    def fetch() -> None:
        shutil.rmtree(copy, ignore_errors=True)  # of an attempt that has failed
        system, path = filesystem(uri.rstrip("/"))
        if not system.isdir(path):
            system.get(path, str(copy))
            return
        # Some stores have an object that stands for the folder.
        names = [name for name in map(str, system.find(path)) if not name.endswith("/")]
        inner = [name.removeprefix(path.rstrip("/")).lstrip("/") for name in names]
        if any(".." in name.split("/") for name in inner):
            raise UnreadableFile(f"{uri}: names of its objects lead out of it")
        targets = [copy / name for name in inner]
        for target in targets:  # not every client makes them
            target.parent.mkdir(parents=True, exist_ok=True)
        system.get(names, list(map(str, targets)))

    try:
        retry_transient(fetch, uri)
    except RecordError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise EdlError(
                ErrorCode.MODEL_NOT_FOUND,
                f"there is nothing at {uri}",
                where=uri,
                remedy="Name a directory that edl train wrote as its --output.",
            ) from None
        raise EdlError(
            ErrorCode.SOURCE_UNREACHABLE,
            f"{uri} cannot be read: {reason_of(error)}",
            where=uri,
            remedy=remedy_of(error),
        ) from error
    return copy
