"""Opens a model zoo and imports its modules; what user code raises becomes an error."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from types import ModuleType

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.errors import user_code_error
from edl_worker.model_file.frames import UserFrame
from edl_worker.model_file.known_names import explain_missing_module
from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.importer import ModelZoo

_RETIRED = {
    "tensorflow_addons": "TensorFlow Addons has ended, and does not work with Keras 3. Keras has "
    "much of it: keras.optimizers.AdamW and Lamb, keras.losses, keras.metrics.F1Score.",
}
"""Packages that must not be installed, and what to use instead."""
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
"""Packages by the names of their modules, where the two differ."""


def open_zoo(model_zoo: str) -> ModelZoo:
    """Return the folder of ``--model-zoo``. Raises: EdlError: MODEL_NOT_FOUND."""
    root = Path(model_zoo).expanduser()
    if not root.is_dir():
        what = "is a file" if root.is_file() else "does not exist"
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the model zoo {model_zoo} {what}",
            where=f"--model-zoo {root.absolute()}",
            remedy="Give the folder that holds the model files; "
            "`edl zoo init DIR` makes one with an example.",
        )
    return ModelZoo.open(root.resolve())


def import_module(zoo: ModelZoo, dotted: str) -> ModuleType:
    """Return a module of the zoo.

    Raises:
        EdlError: MODEL_IMPORT, with a traceback of the user's frames.
    """
    try:
        with compatibility.provide_removed_names():
            return zoo.load(dotted)
    except (KeyboardInterrupt, EdlError):
        raise
    except BaseException as error:  # also SystemExit: a model file may not end the worker
        raise _import_error(error, zoo, dotted) from error


def _import_error(error: BaseException, zoo: ModelZoo, dotted: str) -> EdlError:
    path = zoo.locate(dotted)
    if isinstance(error, SyntaxError):
        return _syntax_error(error, path)
    return user_code_error(
        error,
        zoo.root,
        code=ErrorCode.MODEL_IMPORT,
        action=f"importing {dotted} raised",
        place=str(path or dotted),
        remedy=_remedy(error, zoo),
    )


def _syntax_error(error: SyntaxError, path: Path | None) -> EdlError:
    place = UserFrame(error.filename or str(path), error.lineno or 0, "<module>")
    source = (error.text or "").strip()
    return EdlError(
        ErrorCode.MODEL_IMPORT,
        f"{Path(place.filename).name} is not valid Python: {error.msg}"
        + (f": {source}" if source else ""),
        where=str(place),
        remedy="Fix the line.",
    )


def _remedy(error: BaseException, zoo: ModelZoo) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        if top in _RETIRED:
            return _RETIRED[top]
        line = next(
            (
                each.line
                for each in reversed(traceback.extract_tb(error.__traceback__))
                if each.filename.startswith(f"{zoo.root}{os.sep}")
            ),
            "",
        )
        if removed := explain_missing_module(error, line or ""):
            return removed
        near = zoo.nearest(error.name)
        package = _DISTRIBUTIONS.get(top, top)
        return (
            f"Install it (pip install {package}) and add it to the zoo's requirements.txt"
            + (f", or import {near[0]} of the zoo" if near else "")
            + "."
        )
    if isinstance(error, NameError) and error.name == "ElasticDLSpec":
        return "Add `from elasticdl import ElasticDLSpec` to the file."
    if isinstance(error, NameError) and error.name:
        return f"Define or import {error.name}."
    return "Fix the file. The detail has a traceback."
