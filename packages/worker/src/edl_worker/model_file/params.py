"""``--params``: names and Python literals, which are never evaluated."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model import model_params

_EXAMPLE = '--params="hidden_units=[10, 100, 20, 5], learning_rate=0.01"'


def parse_params(text: str) -> dict[str, Any]:
    """Return the parameters by name. Raises: EdlError: USAGE, with the text and the column."""
    try:
        return model_params.parse_params(text)
    except model_params.ParamsError as error:
        raise EdlError(
            ErrorCode.USAGE,
            f"--params cannot be read: {error}",
            where=f'--params="{text}"' + (f", column {error.column}" if error.column else ""),
            remedy=f"Write names and Python literals, for example {_EXAMPLE}",
        ) from None


def unknown_parameter(name: str, takers: Mapping[str, Iterable[str]]) -> EdlError:
    """Return the error for a parameter that nothing takes.

    Args:
        takers: signature of each definition to the names that it takes.
    """
    known = sorted({taken for names in takers.values() for taken in names})
    nearest = difflib.get_close_matches(
        name, known, n=1, cutoff=0.6
    ) or model_params.find_abbreviation(name, known)
    choices = [
        f"{taken} ({signature.partition('(')[0]})"
        for signature, names in takers.items()
        for taken in names
    ]
    hint = f"Did you mean {nearest[0]}? " if nearest else ""
    return EdlError(
        ErrorCode.UNKNOWN_PARAMETER,
        f"nothing in the model file takes the parameter {name}",
        where=f"--params, {name}",
        remedy=hint
        + (
            f"Use one of: {', '.join(choices)}"
            if choices
            else "This model file takes no parameters"
        )
        + ".",
    )
