"""Rows of a result as a value that a notebook shows as a table."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from edl.render.table import table
from edl_proto.printable import visible


def make_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """Return rows as a DataFrame where pandas is installed, and otherwise as a ``RowTable``."""
    if importlib.util.find_spec("pandas") is None:
        return RowTable(columns, rows)
    return importlib.import_module("pandas").DataFrame(list(rows), columns=list(columns))


@dataclass(frozen=True, slots=True)
class RowTable:
    """Rows that a notebook shows as a table."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def __repr__(self) -> str:
        return "\n".join(table(self.columns, [list(map(_cell_text, row)) for row in self.rows]))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(visible(name))}</th>" for name in self.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(visible(_cell_text(each)))}</td>' for each in row)}</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell_text(value: object) -> str:
    return "NULL" if value is None else str(value)
