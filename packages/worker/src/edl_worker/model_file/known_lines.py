"""Remedies for exceptions that the line of the model file or their class explains."""

from __future__ import annotations

import re
import traceback

from edl_worker.model_file.explanation import Explanation

OWN_FOLDER = (
    "Jobs run in a folder of their own: name a file of the model zoo with "
    "pathlib.Path(__file__).with_name(...), and others by their whole path."
)
_UNNAMED_WEIGHT = re.compile(r"\badd_(?:weight|variable)\(\s*(f?['\"][^'\"]*['\"])")


def explain_line(error: BaseException, message: str, line: str) -> Explanation | None:
    """Return what an exception means, if its class and the line that raised it say so.

    Args:
        message: of the exception, as users see it.
        line: of the model file that raised it.
    """
    if (named := _UNNAMED_WEIGHT.search(line)) is not None:
        return Explanation(
            f"Name the arguments, whose first is the shape: add_weight(name="
            f"{named.group(1)}, shape=..., initializer=...)."
        )
    if "apply_gradients(" in line and "zip(" not in line and re.search(r"[Ii]terat", message):
        return Explanation(
            "apply_gradients takes pairs: apply_gradients(zip(gradients, "
            "self.trainable_variables)); or use optimizer.apply(gradients, "
            "self.trainable_variables)."
        )
    if isinstance(error, FileNotFoundError):
        return Explanation(OWN_FOLDER)
    if isinstance(error, KeyError) and "environ" in line:
        return Explanation(
            f"The variable {message} is not set where the job runs. Make it a parameter of a "
            "function, such as def build_model(units=8), which --params sets and the job keeps."
        )
    if re.match(r"'NoneType' object ", message):
        return Explanation(_name_none(error, message, line))
    if re.match(r"(?:raise|assert)\b", line):
        return Explanation("The file raises this itself: do what its message says.")
    if isinstance(error, NotImplementedError) and not message:
        return Explanation(_name_missing_method(error))
    return None


def _name_none(error: BaseException, message: str, line: str) -> str:
    """Return which part of a line is None, and why that may be."""
    attribute = re.search(r"has no attribute '(\w+)'", message)
    after = rf"\.{attribute.group(1)}\b" if attribute else r"[\[(]"
    owner = re.search(rf"([\w.]+(?:\([^()]*\))?){after}", line)
    shown = f"{owner.group(1)} is None" if owner else "A value of this line is None"
    return f"{shown}: give it a value first, and end functions that make it with return."


def _name_missing_method(error: BaseException) -> str:
    """Return which method a class must define: the one that raised."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    kind = type(frames[-1].f_locals.get("self")).__name__ if frames else ""
    name = frames[-1].f_code.co_name if frames else "it"
    return f"Define {name}(...) in the class {kind}." if kind != "NoneType" else f"Define {name}."
