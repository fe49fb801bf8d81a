"""Remedies from exceptions that say themselves what a value must be."""

from __future__ import annotations

import re
import traceback

from edl_worker.model_file.error_messages import clean_text
from edl_worker.model_file.framework_types import is_tensorflow_error

_RULE = re.compile(
    r"\b(?:must|should|requires?|expects?|expected|needs?|please|only|instead|at (?:least|most)"
    r"|cannot|deprecated|expecting|not (?:compatible|support(?:ed)?|allowed|recognized)"
    r"|has to|have to|use)\b",
    re.I,
)
_INSTRUCTION = re.compile(
    r"^(?:please|use|consider|make sure|try|pass|set|you (?:should|must))\b", re.I
)
_HINT = re.compile(r"\b(?:use|try|pass|set|call|install|consider) `|\binstead\b", re.I)
"""How a sentence says what to do, if none begins with it."""
_SENTENCE = re.compile(r"(?<=[.!?])(?<!vs\.)\s+(?=[A-Z`'\"])|\n\s*\n")
_RECEIVED = re.compile(r"\b[Rr]eceived:? `?(\w+)=(.+?)`?\.?$")
_CLASS = re.compile(r"(?:[Rr]eceived|got):? .*?<class '[\w.]*\.(\w+)'>")
_SHAPES = re.compile(r": (\w+) of (\[.*\])$")
_UNEQUAL = re.compile(r"Incompatible shapes: (\S+) vs\. (\S+)")
_ABSENT = object()
_MAX_SHOWN, _MAX_NAMES = 60, 3
_RULED = (ValueError, TypeError, NotImplementedError, ImportError)
_MAX_CHARACTERS = 240


def explain_rule(error: BaseException, line: str) -> str:
    """Return what to do, from the sentence of an exception that says how a value must be.

    It is empty if no sentence does.

    Args:
        line: of the model file that raised it.
    """
    if not isinstance(error, _RULED) and not is_tensorflow_error(error, "InvalidArgumentError"):
        return ""
    text = re.sub(r"^\w+Error: ", "", clean_text(error))
    sentences = [" ".join(each.split()) for each in _SENTENCE.split(text)]
    shown = f"`{line}`" if 0 < len(line) <= _MAX_CHARACTERS // 2 else "this line"
    if (unequal := _UNEQUAL.search(sentences[0])) is not None:
        one, other = unequal.groups()
        return (
            f"Give both sides of the operation in {shown} one shape, or lengths of 1, which are "
            f"repeated: one has {one}, the other {other}."
        )
    if (shapes := _SHAPES.search(sentences[0])) is not None:
        return (
            f"Make the shapes fit in {shown}, for example with tf.reshape or x[..., tf.newaxis]: "
            f"{shapes.group(1)} gets {shapes.group(2)}."
        )
    if (given := _CLASS.search(" ".join(sentences))) and re.search(
        rf"\b{given.group(1)}\b(?!\()", line
    ):
        kind = given.group(1)
        return f"Write {kind}(...), which makes an object, instead of the class {kind}."
    stated = [each for each in sentences if 0 < len(each) <= _MAX_CHARACTERS and _RULE.search(each)]
    if not stated:
        return ""
    found = (each for way in (_INSTRUCTION, _HINT) for each in stated if way.search(each))
    rule = next(found, stated[0])
    rule = re.sub(r"[;,.]? ?[Rr]eceived:? \S+=.*$", "", rule)
    argument = _describe_argument(error, sentences)
    place = f"{argument} in {shown}" if argument else shown
    return f"Correct {place}: {rule.rstrip('.')}."


def describe_line(error: BaseException, filename: str, line: str) -> str:
    """Return the line of the model file that raised, with the values that its names have there.

    Args:
        filename: of the model file.
        line: of it.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    frames = [frame for frame in frames if frame.f_code.co_filename == filename]
    shown = []
    for name in dict.fromkeys(re.findall(r"(?<![\w.'\"])[A-Za-z_]\w*(?!\w*[(=])", line)):
        value = frames[-1].f_locals.get(name, _ABSENT) if frames else _ABSENT
        if isinstance(value, bool | int | float | str | list | tuple | dict | None):
            text = repr(value)
            shown.append(
                f"{name} is {text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '...'}"
            )
        elif hasattr(value, "shape") and hasattr(value, "dtype"):
            shown.append(f"{name} has the shape {tuple(value.shape)}")
    values = f"; there, {', '.join(shown[:_MAX_NAMES])}" if shown else ""
    return f"Correct `{line}`{values}."


def _describe_argument(error: BaseException, sentences: list[str]) -> str:
    """Return ``name=value`` of the argument that an exception is about; empty if unknown."""
    found = next((match for each in sentences if (match := _RECEIVED.search(each))), None)
    if found is None:
        return ""
    name, shown = found.groups()
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if name in frame.f_locals:
            value = frame.f_locals[name]
            shown = repr(value) if isinstance(value, str | int | float | tuple | list) else shown
            break
    return f"{name}={shown}" if len(shown) <= 60 else name
