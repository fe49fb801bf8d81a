"""Reads trained models, and checks whose code they would run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from google.protobuf.message import DecodeError

from edl import codec
from edl.adapters import image_record, storage
from edl.core import model_trust
from edl.core.locations import scheme
from edl.core.problem import Problem
from edl.core.submission import Submission
from edl.core.tracking import KerasModel
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import model_pb2
from edl_runtime.model.trained_model import (
    KERAS_MODEL,
    MAX_DESCRIPTION_BYTES,
    MODEL_ZOO,
    PARAMETERS,
    TRAINED_MODEL,
    check_file_name,
    check_names,
    check_zoo,
    file_of,
)
from recordio.storage.files import is_regular

_DEEPEST = 100
"""Folders within a model zoo."""

_FORMS_OF_VALUES = (".keras", ".h5", ".safetensors")
"""The endings of files that are the values of a model by themselves."""


def read(folder: str) -> model_pb2.TrainedModel:
    """Return the description of a trained model, whose model zoo is its own copy or nothing.

    Raises:
        EdlError: MODEL_NOT_FOUND or FORBIDDEN.
    """
    place = f"{folder.rstrip('/')}/{TRAINED_MODEL}"
    try:
        content = storage.read(place, MAX_DESCRIPTION_BYTES)
        message = model_pb2.TrainedModel.FromString(content)
        if not message.model_def:
            raise DecodeError("no model is named")
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(folder, place) from None
    except storage.StoreError as error:
        raise EdlError(
            ErrorCode.SOURCE_UNREACHABLE,
            f"the trained model cannot be read: {error}",
            where=place,
            remedy=error.remedy,
        ) from None
    except (OSError, DecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the trained model cannot be read: {reason}",
            where=place,
            remedy="Train the model again, or copy the complete folder again.",
        ) from None
    try:
        check_zoo(message.model_zoo)
        check_names(_names(message))
        check_file_name(message.params_filename)
        check_file_name(message.keras_filename)
    except ValueError as error:
        raise _refusal(error, place) from None
    return message


def image_of(folder: str) -> str:
    """Return the name of the image that a model was trained in; empty if there was none.

    Raises:
        EdlError: MODEL_NOT_FOUND or FORBIDDEN.
    """
    return read(folder).docker_commit_id


def _names(message: model_pb2.TrainedModel) -> Iterator[str]:
    """Yield all texts of a description but the model's parameters, which may be many."""
    for field, value in message.ListFields():
        if isinstance(value, str) and field.name != "model_def_params":
            yield value


def _missing(folder: str, place: str) -> EdlError:
    path = Path(folder)
    what, remedy = "does not exist", "Name the --output folder of a training job that succeeded."
    if path.is_dir():
        what = f"has no {TRAINED_MODEL}"
    elif path.is_file():
        what, place = "is a file, not a folder", folder
        if (path.parent / TRAINED_MODEL).exists():
            remedy = f"Name its folder: {path.parent}"
        elif path.suffix in _FORMS_OF_VALUES:
            remedy += " Only edl train begins with such a file: --init-from."
    return EdlError(
        ErrorCode.MODEL_NOT_FOUND, f"the trained model {what}", where=place, remedy=remedy
    )


def _refusal(error: ValueError, place: str) -> EdlError:
    return EdlError(
        ErrorCode.FORBIDDEN,
        f"the trained model is refused: {error}",
        where=place,
        remedy="No version of edl writes this. Do not use the model unless you know who made"
        " it, and why.",
    )


@contextmanager
def open_keras_model(folder: str) -> Iterator[KerasModel]:
    """Yield the Keras model of a trained model, as a file of this machine.

    Raises:
        EdlError: MODEL_NOT_FOUND or FORBIDDEN; also if the model has no such form.
    """
    description = read(folder)
    place = f"{folder.rstrip('/')}/{description.keras_filename}"
    if not description.keras_filename:
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            "the trained model has no Keras form",
            where=folder,
            remedy="edl status NAME says why, as a warning.",
        )
    with tempfile.TemporaryDirectory(prefix="edl-model-") as temporary:
        file = Path(place)
        try:
            if scheme(place):
                file = Path(temporary) / KERAS_MODEL
                storage.fetch(place, file)
            else:  # the author of the model could send a file of the user to the tracker
                file_of(Path(folder), description.keras_filename)
            os.stat(file)
        except ValueError as error:
            raise _refusal(error, folder) from None
        except (OSError, storage.StoreError) as error:
            raise EdlError(
                ErrorCode.MODEL_NOT_FOUND,
                f"the Keras form of the trained model cannot be read: {error}",
                where=place,
                remedy="Copy the complete folder again.",
            ) from None
        yield KerasModel(file, description.parameter_version, dict(description.versions))


def check_initial_values(place: str) -> None:
    """Check that there is what ``--init-from`` names: a trained model, or a file of values.

    Whether the values can be read and fit the model, the worker finds.

    Raises:
        EdlError: MODEL_NOT_FOUND, FORBIDDEN or SOURCE_UNREACHABLE.
    """
    is_folder = os.path.isdir(place)
    file = place if place.endswith(_FORMS_OF_VALUES) and not is_folder else ""
    try:
        if not file and storage.exists(f"{place.rstrip('/')}/{TRAINED_MODEL}"):
            check_values(place)
            return
        file = file or f"{place.rstrip('/')}/{KERAS_MODEL}"
        if storage.exists(file) if scheme(file) else _is_readable(file):
            return
    except storage.StoreError as error:
        raise EdlError(
            ErrorCode.SOURCE_UNREACHABLE,
            f"the initial values cannot be read: {error}",
            where=place,
            remedy=error.remedy,
        ) from None
    what = "does not exist"
    if is_folder:
        what = f"has neither {TRAINED_MODEL} nor {KERAS_MODEL}"
    elif not scheme(place) and os.path.lexists(place):
        what = "is no file of values, or cannot be read"
    raise EdlError(
        ErrorCode.MODEL_NOT_FOUND,
        f"the trained model {what}",
        where=place,
        remedy="Name the --output folder of a training job that succeeded, or a file that ends in"
        f" {', '.join(_FORMS_OF_VALUES[:-1])} or {_FORMS_OF_VALUES[-1]}.",
    )


def _is_readable(file: str) -> bool:
    try:
        return is_regular(file) and os.access(file, os.R_OK)
    except OSError:
        return False


def check_values(folder: str) -> model_pb2.TrainedModel:
    """Check that a trained model exists, and that its values are in a file of its own.

    Raises:
        EdlError: MODEL_NOT_FOUND or FORBIDDEN.
    """
    description = read(folder)
    if not scheme(folder):
        try:
            file_of(Path(folder), description.params_filename or PARAMETERS)
        except ValueError as error:
            raise _refusal(error, folder) from None
    return description


def check(job: Submission) -> None:
    """Check that a job's trained model exists, and that its code is the user's or trusted.

    Raises:
        EdlError: MODEL_NOT_FOUND or FORBIDDEN.
    """
    description, place = check_values(job.trained_model), job.trained_model
    try:
        if not scheme(place):
            _check_links(Path(place))
            owners = set(_owners(Path(place)))
            model_trust.check_owners(owners, _user(), where=place, accepted=job.trust_model)
        if job.runs_in_image and not job.image and description.docker_commit_id:
            model_trust.check_image(
                description.docker_commit_id,
                (job.repository, *job.trusted_images),
                where=place,
                accepted=job.trust_model or description.docker_commit_id in image_record.read(),
            )
    except Problem as problem:
        raise codec.error_of(problem) from None


def _check_links(model: Path) -> None:
    """Raises: EdlError: FORBIDDEN; a link leads out, and what is there would be packed."""
    zoo = (model / MODEL_ZOO).absolute()
    for path in (zoo, *_entries(zoo)):
        if path.is_symlink() and not path.resolve().is_relative_to(model.resolve() / MODEL_ZOO):
            raise EdlError(
                ErrorCode.FORBIDDEN,
                "the trained model is refused: a link in its model zoo leads out of it",
                where=str(path),
                remedy="Remove the link, or put the file itself there.",
            )


def _owners(model: Path) -> Iterator[int]:
    yield model.stat().st_uid
    zoo = model / MODEL_ZOO
    for path in (model / TRAINED_MODEL, zoo, *_entries(zoo)):
        if os.path.lexists(path):
            yield path.lstat().st_uid


def _entries(folder: Path) -> Iterator[Path]:
    """Yield all that is in a folder and those below it; no link is followed.

    Raises:
        EdlError: FORBIDDEN; it is so deep that not all of it could be looked at.
    """
    below = [(folder, 0)]
    while below:
        each, depth = below.pop()
        if depth > _DEEPEST:
            raise EdlError(
                ErrorCode.FORBIDDEN,
                f"the trained model is refused: its model zoo nests over {_DEEPEST} folders",
                where=f"{str(each)[:200]}…",
                remedy="No version of edl writes this.",
            )
        with suppress(NotADirectoryError, FileNotFoundError, PermissionError):
            for entry in os.scandir(each):
                yield Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    below.append((Path(entry.path), depth + 1))


def _user() -> int:
    """Return the user whose rights count; with sudo, the one who called it."""
    caller = os.environ.get("SUDO_UID", "")
    return int(caller) if os.getuid() == 0 and caller.isdecimal() else os.getuid()
