"""The messages of exceptions of model files, without what Keras and TensorFlow add."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_KERAS_MESSAGE = re.compile(r"^Exception encountered when calling.*?\x1b\[1m(.*?)\x1b\[0m", re.S)
_AUTOGRAPH_HEAD = re.compile(r"^in user code:\n.*\n\n +\w+: ", re.S)
_TENSORFLOW_NOISE = re.compile(r"\{\{function_node [^}]*\}\} ?|\[Op:\w+\]( name: ?\S*)?")
_GRAPH_HEAD = re.compile(r"Graph execution error|Detected at node|\d+ root error\(s\) found")
# Keras adds this in front of what a layer raised, on lines of its own.
_INFERENCE_HEAD = re.compile(r"^Could not automatically infer.*?Error encountered:\s*", re.S)
_ITERATOR_HEAD = re.compile(r"Iterator::[\w:\[\]]+: ")
_ROOT_ERROR = re.compile(r"^\(\d+\) [A-Z_]+: +")
# TensorFlow puts a place in its own iterators in front of an error of a pipeline.
_PIPELINE_HEAD = re.compile(r"^Error in user-defined function passed to .*? transformation.*?: ")

# What TensorFlow says about the node of an operation whose arguments have no fitting shapes.
_NODE = re.compile(
    r"\.? *for '\{\{node [^}]*\}\} = (\w+)\[.*?\]\(.*?\)'"
    r"(?: with input shapes: ((?:\[[^\]]*\](?:, )?)+))?.*",
    re.S,
)
_TENSOR_LIST = re.compile(r" ?Inputs received: \[<KerasTensor.*?\]", re.S)
_AUTOGRAPH_NAME = re.compile(r"(?:[\w.]+\.<locals>\.)+(?:tf__)?(?=\w+\(\)|<lambda>)")
_OF_ONE = ("StridedSlice", "Reshape", "GatherV2", "Transpose", "ExpandDims")
"""Operations whose other arguments are no data."""

_MIN_WRAPPED = 20
"""Characters of a line that may go on in the next one."""


def text_of(error: BaseException) -> str:
    """Return the text of an error; empty if its class cannot tell it."""
    try:
        return str(error)
    except Exception:  # a class of the user's own may be wrong as well
        return ""


def clean_text(error: BaseException) -> str:
    """Return the text of an error without what Keras and TensorFlow add."""
    text = text_of(error)
    keras = _KERAS_MESSAGE.search(text)
    if keras:
        text = keras.group(1)
    text = _ANSI.sub("", text)
    text = _AUTOGRAPH_HEAD.sub("", text)
    text = _INFERENCE_HEAD.sub("", text)
    text = _AUTOGRAPH_NAME.sub("", _TENSOR_LIST.sub("", _NODE.sub(_name_operation, text)))
    return _ITERATOR_HEAD.sub("", _TENSORFLOW_NOISE.sub("", text))


def _name_operation(match: re.Match[str]) -> str:
    """Return the operation of a node and the shapes that it got."""
    operation, shapes = match.groups()
    if not shapes:
        return f": {operation}"
    given = shapes.rstrip(", ")
    if operation in _OF_ONE:
        given = given[: given.index("]") + 1]
    return f": {operation} of {given}"


def message_of(error: BaseException) -> str:
    """Return an error's message in one line, without what Keras and TensorFlow add."""
    text = clean_text(error)
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    first = _PIPELINE_HEAD.sub("", _sentence(lines))
    return first if len(first) <= 400 else first[:397] + "..."


def _sentence(lines: list[str]) -> str:
    """Return the line that says what happened: the first, or the last one of a graph's error.

    Such an error begins with the stacks in which its nodes were created. Its sentence stands
    above the name of the node that failed.
    """
    node = next((at for at, line in enumerate(lines) if line.startswith("[[{{node")), len(lines))
    before = [line for line in lines[:node] if not line.startswith("[[{{node")]
    if before and _GRAPH_HEAD.match(before[0]):
        return _ROOT_ERROR.sub("", before[-1])
    return _join_wrapped(before)


def _join_wrapped(lines: Sequence[str]) -> str:
    """Return the first sentence; Keras breaks long ones into lines."""
    text = lines[0] if lines else ""
    for line in lines[1:]:
        if (
            len(text) < _MIN_WRAPPED
            or text[-1] in ".:!?"
            or not (line[0].islower() or line[0] == "`")
        ):
            break
        text += f" {line}"
    return text
