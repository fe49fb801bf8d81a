"""Names of jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.core import names


@pytest.mark.parametrize("name", ["a", "mnist-3f2a", "0", "x" * 53])
def test_a_label_is_a_name(name: str) -> None:
    assert names.find_fault(name) is None


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "empty"),
        ("x" * 54, "54 characters"),
        ("Mnist", "upper-case"),
        ("-a", "dash"),
        ("a-", "dash"),
        ("a_b", "only lower-case letters"),
        ("a.b", "only lower-case letters"),
        ("../x", "only lower-case letters"),
        ("ä", "only lower-case letters"),
    ],
)
def test_an_invalid_name_is_explained(name: str, word: str) -> None:
    assert word in (names.find_fault(name) or "")


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("mnist.mnist_functional_api", "mnist-functional-api-3f2a"),
        ("mnist.mnist_functional_api.model", "mnist-functional-api-3f2a"),
        ("fintech.MyKerasModel", "fintech-my-keras-model-3f2a"),
        ("regressor.DNN", "regressor-dnn-3f2a"),
        ("regressor.wide_and_deep.MagicalWAD", "wide-and-deep-magical-wad-3f2a"),
        ("circle", "circle-3f2a"),
        ("research.two.spirals", "spirals-3f2a"),
        ("___", "job-3f2a"),
    ],
)
def test_a_generated_name_shows_the_model(subject: str, expected: str) -> None:
    assert names.generate(names.find_subject(subject), "3f2a") == expected


@given(st.text(max_size=200), st.text("0123456789abcdef", min_size=4, max_size=4))
def test_every_made_name_is_a_name(subject: str, suffix: str) -> None:
    assert names.find_fault(names.generate(subject, suffix)) is None
    assert names.find_fault(names.generate(names.find_subject(subject), suffix)) is None


@given(st.text(max_size=200))
def test_every_suggested_name_is_a_name(name: str) -> None:
    assert names.find_fault(names.suggest(name)) is None
