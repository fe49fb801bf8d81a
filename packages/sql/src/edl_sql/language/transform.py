"""The clause TRANSFORM of BigQuery's CREATE MODEL: another spelling of COLUMN.

    TRANSFORM(* EXCEPT(age), ML.BUCKETIZE(age, [18, 40, 65]) AS age_range, price)

Functions of BigQuery become functions of ``columns`` that mean the same to a model. All other
expressions are refused, because a prediction would have to compute them, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import combinations

from edl.plugins.errors import Problem
from edl_sql.language.clauses import ClauseReader
from edl_sql.language.columns import ColumnFunction, ColumnTerm, check_arguments
from edl_sql.language.tokens import is_word

_SCALERS = ("STANDARD_SCALER", "MIN_MAX_SCALER", "MAX_ABS_SCALER", "ROBUST_SCALER")
"""A model subtracts the mean and divides by the deviation, which undoes each of them."""
_CROSSED = 1000
"""The number of hash buckets of a cross; in BigQuery each combination is a category of its own."""
_BUCKETIZE = "ML.BUCKETIZE(x, [bounds])"
_NEAREST = {
    "QUANTILE_BUCKETIZE": f"{_BUCKETIZE}, with the quantiles as bounds",
    "LABEL_ENCODER": "ML.ONE_HOT_ENCODER(x) OVER()",
    "MULTI_HOT_ENCODER": "a column for each value in the SELECT",
    "NORMALIZER": "ML.STANDARD_SCALER(x) OVER() of each element as a column",
    "POLYNOMIAL_EXPAND": "the model DNN_REGRESSOR or DNN_CLASSIFIER, which learns products",
    "NGRAMS": "a column for each word in the SELECT",
    "BAG_OF_WORDS": "a column for each word in the SELECT",
    "TF_IDF": "a column for each word in the SELECT",
}
_KNOWN = (*_SCALERS, "IMPUTER", "BUCKETIZE", "HASH_BUCKETIZE", "ONE_HOT_ENCODER", "FEATURE_CROSS")
_IN_SELECT = (
    "Compute it in the SELECT, under a name of its own, also in the SELECT of later statements."
)


@dataclass(slots=True)
class Transform:
    """The content of the clause TRANSFORM.

    Attributes:
        terms: to learn from, the label among them.
        left_out: columns that EXCEPT names.
        renamed: columns by the names that AS gives them.
    """

    terms: list[ColumnTerm] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)


def read_transform(reader: ClauseReader) -> Transform:
    """Read the list in brackets after TRANSFORM.

    Raises:
        Problem: it has what edl lacks; the error names what is nearest.
    """
    found = Transform()
    reader.expect("(")
    while True:
        terms = _read_item(reader, found.left_out)
        found.terms += terms
        if reader.accept("AS"):
            name = reader.read_name("a name")
            if isinstance(terms[0], str):
                found.renamed[name] = terms[0]
        if not reader.accept(","):
            break
    if not reader.accept(")"):
        raise _refuse_expression(reader)
    return found


def _read_item(reader: ClauseReader, left_out: list[str]) -> list[ColumnTerm]:
    if not reader.accept("*"):
        return _read_term(reader)
    if not reader.accept("EXCEPT"):
        return [".*"]
    reader.expect("(")
    names = [reader.read_name("a column")]
    while reader.accept(","):
        names.append(reader.read_name("a column"))
    reader.expect(")")
    left_out += names
    return [f"(?!(?:{'|'.join(map(re.escape, names))})$).*"]


def _read_term(reader: ClauseReader) -> list[ColumnTerm]:
    """Read a column or a function; a cross of several columns becomes several terms."""
    start = reader.index
    if not reader.has_more() or not reader.words[start].is_name:
        raise _refuse_expression(reader)
    name = reader.read_name("a column")
    if name.upper() != "ML" or not reader.accept("."):
        following = reader.words[reader.index] if reader.has_more() else None
        if following and following.text not in ",)" and not is_word(following, "AS"):
            reader.index = start
            raise _refuse_expression(reader)
        return [name]
    function = reader.read_name("a function").upper()
    if function not in _KNOWN:
        nearest = f"The nearest is {_NEAREST[function]}." if function in _NEAREST else _IN_SELECT
        reader.index = start
        raise reader.mistake(f"edl does not support ML.{function}", 0, nearest)
    reader.expect("(")
    of = _read_struct(reader) if function == "FEATURE_CROSS" else _read_term(reader)
    arguments = []
    while reader.accept(","):
        arguments.append(reader.read_value(f"ML.{function}"))
    reader.expect(")")
    if reader.accept("OVER"):
        reader.expect("(")
        reader.expect(")")
    return _translate(reader, start, function, of, arguments)


def _read_struct(reader: ClauseReader) -> list[ColumnTerm]:
    """Read the columns of FEATURE_CROSS: STRUCT(a, ML.BUCKETIZE(b, [1, 2]) AS c)."""
    reader.expect("STRUCT")
    reader.expect("(")
    found: list[ColumnTerm] = []
    while not found or reader.accept(","):
        found += _read_term(reader)
        if reader.accept("AS"):
            reader.read_name("a name")
    reader.expect(")")
    return found


def _translate(
    reader: ClauseReader,
    start: int,
    function: str,
    of: list[ColumnTerm],
    arguments: list[object],
) -> list[ColumnTerm]:
    """Return the functions of columns that mean a function of BigQuery."""

    def call(name: str, *given: object, of: tuple[ColumnTerm, ...] = (of[0],)) -> ColumnFunction:
        made = ColumnFunction(name, of, given)
        check_arguments(reader, start, made, is_input=True)
        return made

    match function, arguments:
        case _, _ if function in _SCALERS:
            return [call("NUMERIC")]
        case "IMPUTER", ["mean"]:
            return [call("NUMERIC")]
        case "BUCKETIZE", _ if not isinstance(of[0], str):
            reader.index = start
            raise reader.mistake(
                "ML.BUCKETIZE takes a column here, since its bounds are in the unit of the column",
                0,
                _usage(function),
            )
        case "BUCKETIZE", [list(bounds), True, *_]:
            return [call("BUCKET", bounds[1:-1])]
        case "BUCKETIZE", [bounds, *_]:
            return [call("BUCKET", bounds)]
        case "HASH_BUCKETIZE", [size]:
            return [call("CATEGORY_HASH", size)]
        case "ONE_HOT_ENCODER", []:
            return [call("INDICATOR")]
        case "FEATURE_CROSS", [] | [2] | [3] | [4]:
            degree = max([2, *(each for each in arguments if isinstance(each, int))])
            sizes = range(2, degree + 1)
            return [
                call("CROSS", _CROSSED, of=columns)
                for size in sizes
                for columns in combinations(of, size)
            ]
        case _:
            reader.index = start
            raise reader.mistake(
                f"edl does not support these arguments of ML.{function}", 0, _usage(function)
            )


def _usage(function: str) -> str:
    usages = {
        "IMPUTER": "ML.IMPUTER(x, 'mean') OVER()",
        "BUCKETIZE": _BUCKETIZE,
        "HASH_BUCKETIZE": "ML.HASH_BUCKETIZE(x, 1000)",
        "ONE_HOT_ENCODER": "ML.ONE_HOT_ENCODER(x) OVER()",
        "FEATURE_CROSS": "ML.FEATURE_CROSS(STRUCT(a, b))",
    }
    return f"Write {usages[function]}."


def _refuse_expression(reader: ClauseReader) -> Problem:
    return reader.mistake("TRANSFORM takes columns and functions of ML only", 0, _IN_SELECT)
