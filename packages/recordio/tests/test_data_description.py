"""The comparison of columns and features."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from recordio.description import (
    MIXED,
    NUMBER,
    TEXT,
    DataDescription,
    DataField,
    Form,
    compare,
    compare_classes,
    description_from_json,
)


def table(**kinds: str) -> DataDescription:
    return DataDescription(Form.TABLE, tuple(DataField(*one) for one in kinds.items()))


def examples(*fields: DataField) -> DataDescription:
    return DataDescription(Form.EXAMPLES, fields)


KNOWN = table(a=NUMBER, b=TEXT, label=NUMBER)
IMAGES = examples(DataField("image", "bytes", 1), DataField("label", "int64", 1))


def test_the_same_fields_need_no_word() -> None:
    for known in (KNOWN, IMAGES):
        compared = compare(known, known, "the training data")
        assert (compared.problem, compared.notes) == ("", ())


def test_another_order_of_columns_is_noted_and_of_features_it_is_none() -> None:
    swapped = table(b=TEXT, a=NUMBER, label=NUMBER)
    assert "in the order of" in compare(KNOWN, swapped, "the training data").notes[0]
    assert not compare(IMAGES, examples(*reversed(IMAGES.fields)), "the training data").notes


def test_columns_that_are_not_known_are_ignored_with_a_note() -> None:
    found = table(id=TEXT, a=NUMBER, b=TEXT, label=NUMBER)
    (note,) = compare(KNOWN, found, "x").notes
    assert note == "column 'id' is not in x, and is ignored"


@pytest.mark.parametrize("known", [KNOWN, IMAGES])
def test_what_is_missing_is_refused_unless_it_may_be(known: DataDescription) -> None:
    found = DataDescription(known.form, known.fields[:-1])
    refused = compare(known, found, "the training data")
    assert "'label'" in refused.problem
    accepted = compare(known, found, "the training data", may_lack=True)
    assert not accepted.problem
    assert not accepted.warns
    assert "'label'" in accepted.notes[0]
    assert compare(known, DataDescription(known.form, ()), "x", may_lack=True).warns


def test_a_renamed_column_is_named_with_its_new_name() -> None:
    compared = compare(KNOWN, table(a=NUMBER, B=TEXT, label=NUMBER), "the training data")
    assert "'b'" in compared.problem
    assert "'B'" in compared.remedy


@pytest.mark.parametrize("name", ["B", " b", "b."])
def test_a_prediction_needs_no_label_but_every_column_that_is_only_renamed(name: str) -> None:
    found = table(**{"a": NUMBER, name: TEXT, "label": NUMBER})
    compared = compare(KNOWN, found, "the training data", may_lack=True)
    assert "lacks column 'b'" in compared.problem
    assert repr(name) in compared.remedy


def test_a_prediction_on_other_columns_instead_is_warned_of() -> None:
    compared = compare(KNOWN, table(a=NUMBER, b=TEXT, x=NUMBER, y=TEXT), "it", may_lack=True)
    assert compared.warns
    assert compared.notes == (
        "column 'label' of it is not there",
        "columns 'x', 'y' are not in it, and are ignored",
    )


def test_a_prediction_on_a_key_besides_the_features_is_no_reason_to_warn() -> None:
    known = examples(DataField("area", "float", 1), DataField("label", "float", 1))
    found = examples(DataField("area", "float", 1), DataField("id", "int64", 1))
    for has_labels in (True, False):
        compared = compare(known, found, "it", may_lack=True, has_labels=has_labels)
        assert compared.warns is has_labels
        assert compared.notes == ("feature 'label' of it is not there",)
    nothing = examples(DataField("id", "int64", 1))
    assert compare(known, nothing, "it", may_lack=True, has_labels=False).warns


def test_all_that_is_missing_is_named_beside_what_was_renamed() -> None:
    compared = compare(KNOWN, table(a=NUMBER, B=TEXT), "the training data")
    assert "lacks columns 'b', 'label'" in compared.problem


def test_only_columns_get_another_order() -> None:
    swapped = table(label=NUMBER, b=TEXT, a=NUMBER)
    assert swapped.in_order_of(KNOWN) == KNOWN
    assert KNOWN.in_order_of(table(a=NUMBER, label=NUMBER)) == KNOWN
    features = DataDescription(Form.EXAMPLES, swapped.fields)
    assert features.in_order_of(KNOWN) == features


def test_values_of_another_kind_are_refused_unless_some_were_seen_of_both() -> None:
    found = table(a=TEXT, b=TEXT, label=NUMBER)
    assert compare(KNOWN, found, "x").problem == "the column 'a' has text, in x numbers"
    tolerated = compare(KNOWN, found, "x", may_differ=True)
    assert tolerated.warns
    assert "'a'" in tolerated.notes[0]
    for kind in (MIXED, ""):
        assert not compare(KNOWN, table(a=kind, b=TEXT, label=NUMBER), "x").problem
    floats = examples(DataField("image", "float", 1), DataField("label", "int64", 1))
    assert "'image' has float, in x bytes" in compare(IMAGES, floats, "x").problem


def test_another_number_of_values_is_refused_where_both_are_fixed() -> None:
    for size, wrong in ((3, True), (-1, False)):
        found = examples(DataField("image", "bytes", size), DataField("label", "int64", 1))
        assert bool(compare(IMAGES, found, "x").problem) is wrong


def test_rows_are_no_examples() -> None:
    assert "rows of CSV" in compare(IMAGES, KNOWN, "x").problem


def test_a_feature_that_some_records_lack_may_be_missing() -> None:
    known = IMAGES.merge(examples(DataField("label", "int64", 1)))
    assert not compare(known, examples(DataField("label", "int64", 1)), "x").problem


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ((), ""),
        ((("cat", 0),), ""),
        ((("dog", 1), ("fish", 2)), ""),
        ((("dog", 0),), "the label 'dog' is 0, in x 1"),
        ((("fish", 1),), "the label 1 is 'fish', in x 'dog'"),
    ],
)
def test_labels_keep_their_numbers(others: tuple[tuple[str, int], ...], problem: str) -> None:
    known = replace(IMAGES, classes=(("cat", 0), ("dog", 1)))
    compared = compare_classes(known, replace(IMAGES, classes=others), "x")
    assert compared.problem.endswith(problem)
    assert bool(compared.problem) is bool(problem)
    assert dict(known.merge(replace(IMAGES, classes=others)).classes)["dog"] == 1


def test_a_description_survives_its_trained_model() -> None:
    merged = KNOWN.merge(table(a=TEXT, b="", label=NUMBER))
    assert merged.fields[0].kind == MIXED
    numbered = replace(IMAGES, classes=(("cat", 0), ("dog", 1)))
    for known in (merged, IMAGES, numbered):
        assert description_from_json(json.loads(json.dumps(known.as_json()))) == known
    assert description_from_json({}) is None
