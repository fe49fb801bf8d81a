"""Tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edl_proto.printable import one_line


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns, numbers to the right."""
    body = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(header, *body, strict=True)]
    right = [
        bool(body) and all(_is_number(row[index]) for row in body) for index in range(len(header))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return [line(header), *(line(row) for row in body)]


def _is_number(cell: str) -> bool:
    return bool(cell) and (
        cell == "-" or cell.strip("%").replace(",", "").replace(".", "").isdigit()
    )
