"""Reads trained models, and checks whose code they would run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
from edl_proto.model.trained_model import MODEL_ZOO, TRAINED_MODEL, check_zoo
from edl_proto.v1 import model_pb2


def read(folder: str) -> model_pb2.TrainedModel:
    """The description of a trained model, whose model zoo is its own copy or nothing.

    Raises:
        EdlError: MODEL_NOT_FOUND or FORBIDDEN.
    """
    place = f"{folder.rstrip('/')}/{TRAINED_MODEL}"
    try:
        message = model_pb2.TrainedModel.FromString(storage.read(place))
        if not message.model_def:
            raise DecodeError("no model is named")
    except (FileNotFoundError, NotADirectoryError):
        there = "has no trained_model.pb" if Path(folder).is_dir() else "does not exist"
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the trained model {there}",
            where=place,
            remedy="Name the --output folder of a training job that succeeded.",
        ) from None
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
    except ValueError as error:
        raise EdlError(
            ErrorCode.FORBIDDEN,
            f"the trained model is refused: {error}",
            where=place,
            remedy="No version of edl writes this. Do not use the model unless you know who made"
            " it, and why.",
        ) from None
    return message


@contextmanager
def open_keras_model(folder: str) -> Iterator[KerasModel]:
    """The Keras model of a trained model, on this machine, within a context.

    Raises:
        EdlError: MODEL_NOT_FOUND or FORBIDDEN; also if the model has no such form.
    """
    description = read(folder)
    place = f"{folder.rstrip('/')}/{os.path.basename(description.keras_filename)}"
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
                file = Path(temporary) / "model.keras"
                storage.fetch(place, file)
            os.stat(file)
        except (OSError, storage.StoreError) as error:
            raise EdlError(
                ErrorCode.MODEL_NOT_FOUND,
                f"the Keras form of the trained model cannot be read: {error}",
                where=place,
                remedy="Copy the complete folder again.",
            ) from None
        yield KerasModel(file, description.parameter_version, dict(description.versions))


def check(job: Submission) -> None:
    """Check that a job's trained model exists, and that its code is the user's or trusted.

    Raises:
        EdlError: MODEL_NOT_FOUND or FORBIDDEN.
    """
    description, place = read(job.trained_model), job.trained_model
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
    for root, folders, names in os.walk(folder):
        yield from (Path(root) / name for name in (*folders, *names))


def _user() -> int:
    """The user whose rights count; with sudo, the one who called it."""
    caller = os.environ.get("SUDO_UID", "")
    return int(caller) if os.getuid() == 0 and caller.isdecimal() else os.getuid()
