"""The results of statements as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edl.plugins.commands import table

_MAX_WIDTH = 60


def lines_of(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one statement's result; none if messages have told it all."""
    match result:
        case {"models": models}:
            yield from table(
                ("MODEL", "LEARNED BY", "LABEL", "FROM"),
                [
                    (each["model"], each["model_def"], each["label"], _clip(each["columns"]))
                    for each in models
                ],
            )
            yield from [] if models else ["no models"]
        case {"model_def": model_def, "statement": statement}:
            columns = (f"{name} ({kind})" for name, kind in result["columns"].items())
            known = {
                "model": result["model"],
                "learned by": model_def,
                "label": result["label"],
                "classes": ", ".join(result["classes"]),
                "from": ", ".join(columns),
                "statement": statement,
            }
            yield from (f"{name + ':':<12}{value}" for name, value in known.items() if value)
        case {"statement": statement}:
            yield str(statement)
        case {"contributions": contributions}:
            rows = [(name, f"{value:.4g}") for name, value in contributions.items()]
            yield from table(("COLUMN", "MEAN CONTRIBUTION"), rows)
        case {"columns": columns, "rows": rows}:
            yield from table(columns, [list(map(_cell, row)) for row in rows])
            yield from [] if rows else ["no rows"]
        case {"model": model, "dropped": dropped}:
            yield f"the model {model} is removed" if dropped else f"there is no model {model}"


def _cell(value: object) -> str:
    return "NULL" if value is None else str(value)


def _clip(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 1]}…"
