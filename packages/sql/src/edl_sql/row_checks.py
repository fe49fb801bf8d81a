"""Checks of the rows that a model is to learn from, before a job finds out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import recordio
import recordio.example
from edl.plugins.errors import usage
from edl_convert.column_types import Cell, cell_kind
from edl_sql.language.positions import SqlPositions

_SAMPLE = 1000
"""Rows that are looked at."""
_OF_NUMBERS = ("NUMERIC", "DENSE", "BUCKET", "CATEGORY_ID")


def are_numbers(texts: Sequence[str]) -> bool:
    """Return whether these are texts of numbers, two different ones at least."""
    kinds = {cell_kind(text) for text in texts}
    return Cell.TEXT not in kinds and len(set(texts)) > 1


def find_written_numbers(folder: str, schema: Mapping[str, Any]) -> list[str]:
    """Return the columns of texts that are numbers in all of the first rows.

    Args:
        folder: of the records.
        schema: of their columns; the label is none of those to find.
    """
    texts: dict[str, list[str]] = {
        each["name"]: []
        for each in schema["columns"]
        if each["type"] == "string" and each["name"] != schema["label"]
    }
    if not texts:
        return []
    for record in islice(_records(folder), _SAMPLE):
        features = recordio.example.decode(record)
        for name, values in texts.items():
            values += [bytes(each).decode() for each in features.get(name, ())]
    return [name for name, values in texts.items() if are_numbers(values)]


def _records(folder: str) -> Iterator[bytes]:
    for file in recordio.expand(folder):
        source = recordio.open_source(file)
        yield from source.read(0, source.count())


def check_functions(columns: Sequence[object], schema: Mapping[str, Any], at: SqlPositions) -> None:
    """Check that functions are of columns that they can take, and of no label.

    Args:
        columns: terms, those with functions as lists.

    Raises:
        Problem: one is not; a job would say the same.
    """
    is_text = {each["name"]: each["feature"] == "bytes" for each in schema["columns"]}
    for term in columns:
        if not isinstance(term, list):
            continue
        function, inner = term[0], term[1]
        check_functions(inner if function == "CROSS" else [inner], schema, at)
        if not isinstance(inner, str):
            continue
        if inner not in is_text:
            raise usage(
                f"{inner} is the label: a model cannot learn from it, too",
                where=at.mark("COLUMN", inner),
                remedy="Leave it out of COLUMN, or name another LABEL.",
            )
        if is_text[inner] and function in _OF_NUMBERS:
            what, remedy = "is of numbers", f"Write {inner} alone, or CATEGORY_HASH({inner}, n)."
        elif not is_text[inner] and function == "INDICATOR":
            what = "is of categories"
            remedy = f"Write INDICATOR(CATEGORY_ID({inner}, n)), CATEGORY_HASH or BUCKET."
        else:
            continue
        raise usage(
            f"{function} {what}, and {inner} is a {'text' if is_text[inner] else 'number'}",
            where=at.mark("COLUMN", inner),
            remedy=remedy,
        )
