"""Rows of CSV with the columns that the model file expects, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edl_proto.errors import EdlError, ErrorCode
from recordio.formats.csvfile import join_row, split_row


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The columns of rows, and which of them the model file gets.

    Attributes:
        columns: of the file; empty if its records are no rows.
        places: for each column that the model file gets, its place in the file; None: it gets all.
    """

    columns: tuple[str, ...]
    places: tuple[int, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the model file gets, in order."""
        if self.places is None:
            return self.columns
        return tuple(self.columns[place] for place in self.places)

    def arrange(self, blocks: Callable[[], Iterator[list[bytes]]]) -> Iterator[list[bytes]]:
        """Yield blocks of rows as the model file gets them.

        Raises:
            EdlError: DATA_DAMAGED: a row has another number of fields than there are columns.
        """
        if self.places is None:
            return blocks()
        return ([self._row(row) for row in block] for block in blocks())

    def _row(self, row: bytes) -> bytes:
        assert self.places is not None, "rows are as in the file"
        if b'"' not in row:
            cells = row.split(b",")
            check_fields(len(cells), self.columns)
            return b",".join([cells[place] for place in self.places])
        texts = split_row(row)
        check_fields(len(texts), self.columns)
        return join_row(texts[place] for place in self.places)


def check_fields(fields: int, columns: Sequence[str]) -> None:
    """Check that a row has a field for each column. Raises: EdlError: DATA_DAMAGED."""
    if fields != len(columns):
        raise EdlError(
            ErrorCode.DATA_DAMAGED,
            f"a row has {fields} fields, the header {len(columns)}",
            remedy="Correct the row, or quote fields that contain the separator.",
        )


def find_order(columns: Sequence[str], wanted: Sequence[str]) -> RowOrder:
    """Return which columns of a file the model file gets: those that it knows, in its order."""
    columns = tuple(columns)
    if not columns or not wanted or columns == tuple(wanted):
        return RowOrder(columns)
    places = tuple(columns.index(name) for name in wanted if name in columns)
    return RowOrder(columns, None if places == tuple(range(len(columns))) else places)


def own_reader_error(uri: str, order: RowOrder) -> EdlError:
    """Return the error for a file in another order whose rows the model file reads by itself."""
    return EdlError(
        ErrorCode.SHAPE_MISMATCH,
        "the columns are in another order than in the training data, or there are others, and "
        "custom_data_reader reads the file by itself",
        where=uri,
        remedy=f"Write the columns in this order: {', '.join(order.names)}",
    )
