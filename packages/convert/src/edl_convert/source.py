"""The interface that every format has for the conversion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from edl_convert.formats import ImageForm
from edl_convert.schema import ColumnType


@dataclass(frozen=True, slots=True)
class ConversionOptions:
    """How to read; every format takes what concerns it."""

    columns: tuple[str, ...] = ()
    label: str = ""
    delimiter: str = ""
    image_form: ImageForm = ImageForm.FLOATS
    size: tuple[int, int] | None = None
    """Height and width that images are brought to."""
    classes: tuple[str, ...] = ()
    """The label's texts in the order of their numbers, for queries; by default those there are."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the label's texts; by default in alphabetical order."""
    keys: tuple[str, ...] = ()
    """Columns that identify rows, for queries: a record must hold their values exactly."""
    floats: tuple[str, ...] = ()
    """Columns that become floats also if they hold integers only, for queries."""


class ExampleSource(Protocol):
    """Records to convert.

    Attributes:
        name: of what is read, for messages.
        total: number of records, or None if it is unknown before the end.
        classes: numbers of the classes' names, if labels were numbered.
        image_shape: height, width and channels of the pixels in the feature ``image``; None
            before the first record is read, and if there are none.
        types: what the columns hold where they come from, in their order, once all records are
            read; of a source without types, nothing.
    """

    @property
    def name(self) -> str: ...

    @property
    def total(self) -> int | None: ...

    @property
    def classes(self) -> Mapping[str, int]: ...

    @property
    def image_shape(self) -> tuple[int, ...] | None: ...

    @property
    def types(self) -> Mapping[str, ColumnType]: ...

    def records(self) -> Iterator[bytes]:
        """Yield all records in order, ready to be written.

        Raises:
            ReadAgain: those before were wrong.
        """


class ReadAgain(Exception):
    """Raised by ``records`` when what it has yielded is wrong; called again, it yields all anew."""


@runtime_checkable
class Unordered(Protocol):
    """A source whose records have no order of their own, and which reads them in any order."""

    def shuffle(self, seed: int) -> None:
        """Let ``records`` yield the records in a random order that the seed decides."""
