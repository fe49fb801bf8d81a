"""Values of databases as features of records: which type becomes what, and what cannot."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import isinf
from typing import Any

from edl_convert.schema import ColumnType

Feature = int | float | bytes | list[int] | list[float] | list[bytes]

_INT64 = range(-(2**63), 2**63)
_MAX_FLOAT32 = (2 - 2**-23) * 2.0**127
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_WIDENS = {
    # A column of the first type also takes values of these.
    ColumnType.FLOAT: {ColumnType.BOOLEAN, ColumnType.INTEGER, ColumnType.DECIMAL},
    ColumnType.DECIMAL: {ColumnType.INTEGER, ColumnType.FLOAT},
    ColumnType.INTEGER: {ColumnType.BOOLEAN},
}


_WHOLE = (ColumnType.INTEGER, ColumnType.BOOLEAN)


class Unconvertible(ValueError):
    """A value that a record cannot hold.

    Args:
        what: about the value, to follow its place: "a value of type interval cannot …".
        remedy: what to write into the query.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class SqlColumn:
    """One column of a result. Its first value that is not NULL decides the type.

    Drivers of databases with types give values of one Python type for a column; SQLite has types
    of values only, and a column with several is refused unless they are integers and floats.

    Args:
        is_temporal: the database declares dates or times. Its driver returns a text for a value
            that is not valid, such as 0000-00-00.
        is_key: it identifies rows, so a record must hold its values exactly.
        has_floats: it has one at least, perhaps behind integers.
        wants_floats: integers and booleans become floats, too.
    """

    def __init__(
        self,
        name: str,
        *,
        is_temporal: bool = False,
        is_key: bool = False,
        has_floats: bool = False,
        wants_floats: bool = False,
    ) -> None:
        self.name = name
        self._is_temporal = is_temporal
        self._is_key = is_key
        self._wants_floats = wants_floats
        self._type = ColumnType.FLOAT if has_floats else ColumnType.UNKNOWN
        self._is_array = False

    @property
    def type(self) -> ColumnType:
        """The type of the values, or of the items of arrays; UNKNOWN before the first value."""
        return self._type

    def feature(self, value: Any) -> Feature | None:
        """Return a value as a feature; None for NULL, which records leave out.

        Raises:
            Unconvertible: it does not fit a record, or the column's earlier values.
        """
        if value is None:
            return None
        if self._is_temporal and isinstance(value, str):
            raise Unconvertible(
                f"{value} is not a valid date or time",
                f"NULLIF({self.name}, '{value}') makes it NULL.",
            )
        if self._is_key and isinstance(value, float | Decimal) and not _is_exact(value):
            raise Unconvertible(
                f"{value} identifies a row, and has more digits than a record's float of 32 bits",
                "CAST it to an integer or a text.",
            )
        is_array = isinstance(value, list | tuple)
        if self._type is ColumnType.UNKNOWN:
            self._is_array = is_array
        elif is_array is not self._is_array:
            raise Unconvertible("arrays and single values in one column", "CAST it to one type.")
        if not is_array:
            return self._scalar(value)
        return self._array(value)

    def features(self, values: Sequence[Any]) -> list[Feature | None]:
        """Return consecutive values as features, each as ``feature`` returns it.

        Raises:
            Unconvertible: one of them does not fit; which one, ``feature`` tells.
        """
        kinds = set(map(type, values)) - {type(None)}
        known = _CONVERSIONS.get(kinds.pop()) if len(kinds) == 1 else None
        if known is None or known[0] is not self._type or self._is_array or self._is_key:
            return [self.feature(value) for value in values]
        convert = known[1]
        return [None if value is None else convert(value) for value in values]

    def _array(self, items: Iterable[Any]) -> list[Any]:
        features = []
        for item in items:
            if item is None:
                raise Unconvertible(
                    "an array contains NULL", "Replace it: array_replace(column, NULL, 0)"
                )
            if isinstance(item, list | tuple):
                raise Unconvertible("an array of arrays", "Select its parts as columns.")
            features.append(self._scalar(item))
        return features

    def _scalar(self, value: Any) -> int | float | bytes:
        known = _CONVERSIONS.get(type(value))
        if known is None:
            raise Unconvertible(
                f"a value of type {_type_name(value)} cannot be stored in a record",
                "CAST it in the query to a number, a text or a timestamp.",
            )
        kind, convert = known
        if kind is not self._type:
            is_first = self._type is ColumnType.UNKNOWN
            if is_first and self._wants_floats and kind in _WHOLE:
                self._type, convert = ColumnType.FLOAT, _real
            elif is_first:
                self._type = kind
            elif kind not in _WIDENS.get(self._type, ()):
                raise Unconvertible(
                    f"a value of type {kind} in a column whose first value is of type {self._type}",
                    f"CAST it to one type: CAST({self.name} AS …)",
                )
            else:
                convert = _real if self._type is not ColumnType.INTEGER else _integer
        return convert(value)


def _integer(value: Any) -> int:
    if value not in _INT64:
        raise Unconvertible(
            f"the integer {value} is beyond 64 bits", "CAST it to a text or a float."
        )
    return int(value)


def _real(value: Any) -> float:
    number = float(value)
    # Of a float, an infinity is a value; of a decimal, float() makes one of a number.
    is_infinite = isinf(number) and not (isinstance(value, Decimal) and value.is_finite())
    if abs(number) > _MAX_FLOAT32 and not is_infinite:
        raise Unconvertible(
            f"{value} is beyond the range of a 32-bit float", "Scale it in the query, or use ln()."
        )
    return number


def _is_exact(value: float | Decimal) -> bool:
    """Return whether a 32-bit float represents a number exactly."""
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False


def _text(value: Any) -> bytes:
    try:
        return str(value).encode()
    except UnicodeEncodeError:
        raise Unconvertible("a text is not valid UTF-8", "CAST it to bytes.") from None


def _microseconds(value: datetime) -> int:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _days(value: date) -> int:
    return value.toordinal() - _EPOCH_DAY


_CONVERSIONS: dict[type, tuple[ColumnType, Callable[[Any], int | float | bytes]]] = {
    bool: (ColumnType.BOOLEAN, int),
    int: (ColumnType.INTEGER, _integer),
    float: (ColumnType.FLOAT, _real),
    Decimal: (ColumnType.DECIMAL, _real),
    str: (ColumnType.STRING, _text),
    uuid.UUID: (ColumnType.STRING, _text),
    bytes: (ColumnType.BYTES, bytes),
    bytearray: (ColumnType.BYTES, bytes),
    memoryview: (ColumnType.BYTES, bytes),
    datetime: (ColumnType.TIMESTAMP, _microseconds),
    date: (ColumnType.DATE, _days),
}
_NAMES = {timedelta: "interval", time: "time of day", dict: "json"}


def _type_name(value: Any) -> str:
    return _NAMES.get(type(value), type(value).__name__)
