"""What a model of a table's rows knows of their columns: the content of ``schema.json``.

``edl data convert`` writes that file next to the records. A model gets the content as the parameter
``schema``, and so the trained model has it, too: the statistics are always those of the training.
"""

from dataclasses import dataclass

import numpy as np

_NUMBERS = {np.float32, np.float64, np.int64}
NULL_TEXT = b"\0NULL"
"""What a NULL among texts becomes; no text of a database begins so."""


@dataclass(frozen=True)
class Column:
    """One feature.

    Attributes:
        is_text: its values are bytes; else numbers.
        width: number of values in each row.
        nulls: how many rows of the training data have none.
        mean, deviation: of the numbers.
        vocabulary: number of different texts.
        least, greatest: of the numbers.
    """

    name: str
    is_text: bool = False
    width: int = 1
    nulls: int = 0
    mean: float = 0.0
    deviation: float = 1.0
    vocabulary: int = 0
    least: float = 0.0
    greatest: float = 0.0

    def values(self, records):
        """The values in these records: (n, width), float32 or bytes; a NULL is NaN or ``NULL_TEXT``.

        Raises:
            ValueError: they are not what the model was trained with.
        """
        found = [record.get(self.name) for record in records]
        if self.width == 1 and not self.is_text and set(map(type, found)) <= _NUMBERS:
            return np.array(found, np.float32).reshape(-1, 1)  # as below, but many times faster
        rows = [self._row(value) for value in found]
        return np.array(rows, dtype=object if self.is_text else np.float32)

    def _row(self, value):
        found = [value] if isinstance(value, bytes) or np.ndim(value) == 0 else list(value)
        if value is None or not found:
            if not self.nulls:
                raise ValueError(
                    f"a record has no {self.name}, and no row of the training data had a NULL there; "
                    f"select the column {self.name}, with COALESCE({self.name}, ...) for its NULLs"
                )
            return [NULL_TEXT if self.is_text else np.nan] * self.width
        if any(isinstance(one, bytes) != self.is_text for one in found):
            now, then = ("a number", "texts") if self.is_text else ("a text", "numbers")
            raise ValueError(
                f"{self.name} is {now}, {found[0]!r}; the model was trained with {then}: CAST it"
            )
        if len(found) != self.width:
            raise ValueError(
                f"{self.name} has {len(found)} values; the model was trained with {self.width}"
            )
        return found


def label_of(schema, label=None):
    """Name of the label: the parameter, or what the data was converted with; else None."""
    return label or (schema or {}).get("label")


def columns_of(schema, label=None):
    """The features in the order of their names: all columns but the label.

    Args:
        schema: the content of ``schema.json``.

    Raises:
        ValueError: a column cannot be a feature, or there is none.
    """
    wanted = (each for each in schema["columns"] if each["name"] != label_of(schema, label))
    found = sorted(map(_column, wanted), key=lambda column: column.name)
    if not found:
        raise ValueError("the data has only the column of the label: select others to learn from")
    return found


def label_column(schema, label=None):
    """Statistics of the label as a dictionary, or None.

    Raises:
        ValueError: the schema has no such column.
    """
    name = label_of(schema, label)
    if not schema or not name:
        return None
    for column in schema["columns"]:
        if column["name"] == name:
            return column
    known = ", ".join(column["name"] for column in schema["columns"])
    raise ValueError(f"there is no column {name} for the label; there are {known}")


def number_of_classes(schema, label):
    """One more than the greatest label of the schema, and two at least.

    Raises:
        ValueError: there is no schema, or the label is no class.
    """
    found = label_column(schema, label)
    if found is None:
        raise ValueError("how many classes are there? Say so with n_classes=N")
    least, greatest = found.get("min"), found.get("max")
    if found["feature"] != "int64" or least < 0:
        raise ValueError(
            f"the label {found['name']} must be a class: an integer from 0 on"
            + ("" if least is None else f", but the least is {least}")
        )
    return max(2, greatest + 1)


def _column(given):
    name, values = given["name"], given.get("values", {"min": 0, "max": 0})
    if given["feature"] not in ("int64", "float", "bytes"):
        what = "no values at all" if given["feature"] is None else "values of several types"
        raise ValueError(f"the column {name} has {what}: leave it out, or CAST it")
    if values["min"] != values["max"]:
        raise ValueError(
            f"the column {name} has {values['min']} to {values['max']} values: "
            "select equally many for each row"
        )
    if given.get("not_finite"):
        raise ValueError(f"the column {name} has infinities or NaN: leave these rows out")
    return Column(
        name,
        given["feature"] == "bytes",
        values["max"],
        given["nulls"],
        given.get("mean", 0.0),
        given.get("deviation") or 1.0,
        given.get("vocabulary", {}).get("size", 0),
        given.get("min", 0.0),
        given.get("max", 0.0),
    )
