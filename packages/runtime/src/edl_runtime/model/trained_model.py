"""The files of a trained model that client, master and worker know, and their checks.

A trained model may come from anywhere. What its description names is in its own folder, or nothing:
another place would be code or files of the model's user.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

TRAINED_MODEL = "trained_model.pb"
"""The description of a trained model, written last: a directory with it is complete."""

MODEL_ZOO = "model_zoo"
"""The folder of a trained model with its own copy of its code."""

PARAMETERS = "parameters.safetensors"
"""The values of a trained model, if its description names no other file."""

KERAS_MODEL = "model.keras"
"""The Keras form of a trained model, if Keras can save the model."""

MAX_DESCRIPTION_BYTES = 1 << 20
"""Limit on the bytes of a description; those of edl have some hundreds."""

_MAX_NAME_LENGTH = 1000


def check_zoo(named: str) -> None:
    """Check which folder a description names as its model zoo: the model's own copy, or nothing.

    Raises:
        ValueError: it is another one; the message has the name.
    """
    if named not in ("", MODEL_ZOO):
        raise ValueError(f"it names {named!r} as its model zoo, which is not its own {MODEL_ZOO}")


def check_names(names: Iterable[str]) -> None:
    """Check the names of definitions and files in a description.

    Raises:
        ValueError: one is no name, because of its length.
    """
    for name in names:
        if len(name) > _MAX_NAME_LENGTH:
            raise ValueError(f"it has a name of {len(name)} characters: {name[:40]!a}…")


def check_file_name(named: str) -> None:
    """Check the name of a file that a description names: it is in the model's own folder.

    Raises:
        ValueError: it is elsewhere, or a folder.
    """
    if "/" in named or named in (".", "..") or "\0" in named:
        raise ValueError(f"it names {named!a} as a file of its own, which leads out of it")


def file_of(model: Path, named: str) -> Path:
    """Return the path of a file of a trained model on this machine; it may be missing.

    Raises:
        ValueError: the name or a link leads out of the model, or it is no regular file: a pipe
            would be waited for, and a device has no end.
    """
    check_file_name(named)
    path = model / named
    if path.is_symlink() and not path.resolve().is_relative_to(model.resolve()):
        raise ValueError(f"its {named!a} is a link that leads out of it")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return path
    if not stat.S_ISREG(mode):
        raise ValueError(f"its {named!a} is not a regular file")
    return path


def read_description(model: Path) -> bytes:
    """Read the description of a trained model on this machine.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none, because of its kind or size.
    """
    with open(file_of(model, TRAINED_MODEL), "rb") as file:
        content = file.read(MAX_DESCRIPTION_BYTES + 1)
    if len(content) > MAX_DESCRIPTION_BYTES:
        raise ValueError(f"it is larger than {MAX_DESCRIPTION_BYTES} bytes")
    return content
