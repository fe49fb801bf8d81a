"""Locations of data and results, as users write them: paths, globs and URIs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from edl.core.problem import usage

_MODEL_FILES = (".keras", ".h5", ".hdf5")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_ONE_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def scheme(location: str) -> str:
    """Return the scheme: ``gs`` of ``gs://bucket/x``; empty for a path."""
    match = _SCHEME.match(location)
    return match[1].lower() if match else ""


def check(location: str, option: str, where: str = "") -> None:
    """Refuse what looks like a URI and is none.

    Args:
        option: the option or argument whose value this is.
        where: the place of the value, if that is not the option itself.

    Raises:
        Problem: USAGE; the location is a scheme and nothing else, or has one slash.
    """
    kind = scheme(location)
    if _ONE_SLASH.match(location):
        why = "a URI has two slashes after its scheme"
    elif kind and not location[len(kind) :].strip(":/"):
        why = "nothing comes after the scheme"
    else:
        return
    raise usage(
        f"{option} {location}: {why}",
        where=where or option,
        remedy="Write the whole URI, such as s3://bucket/folder, or a path.",
    )


def check_model_folder(location: str, option: str, where: str = "") -> None:
    """Refuse the name of a file for a trained model, which is a folder.

    Args:
        option: the option whose value this is.
        where: the place of the value, if that is not the option itself.

    Raises:
        Problem: USAGE; the name ends as that of a file of Keras.
    """
    stem, suffix = posixpath.splitext(location.rstrip("/"))
    if suffix.lower() in _MODEL_FILES:
        raise usage(
            f"{option} {location}: a trained model is a folder, and this is the name of a file",
            where=where or option,
            remedy=f"Name a folder, such as {stem.removesuffix('.weights')}. It will have a file "
            "model.keras for keras.models.load_model.",
        )


def absolute(location: str, base: str, environ: Mapping[str, str]) -> str:
    """Return the location without ``~``, variables, ``file://`` and relative parts.

    Args:
        location: a path, glob or URI.
        base: absolute folder that a relative path starts from.
        environ: variables for ``$NAME``, and HOME for ``~``; unknown ones stay as written.
    """
    text = _VARIABLE.sub(lambda found: environ.get(found[1] or found[2], found[0]), location)
    kind = scheme(text)
    if kind == "file":
        text = unquote(text[len("file://") :]).removeprefix("localhost")
    elif kind:
        return text
    home = environ.get("HOME", "")
    if home and (text == "~" or text.startswith("~/")):
        text = home + text[1:]
    return posixpath.normpath(posixpath.join(base, text))


def user_path(text: str | Path) -> Path:
    """Return a path with ``~`` as the user's home folder, and ``~ada`` as that of Ada.

    Raises:
        Problem: USAGE; the system does not know this home folder.
    """
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        home = path.parts[0]
        raise usage(
            f"there is no home folder {home}",
            where=str(text),
            remedy=f"Write the whole path, or ./{text} if {home} is the name of a folder.",
        ) from None
