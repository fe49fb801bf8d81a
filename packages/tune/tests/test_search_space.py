"""Search spaces as people write them."""

from __future__ import annotations

import pytest

from edl.plugins.errors import Problem
from edl_tune.core.objective import Objective, check_reported, read_objective
from edl_tune.core.search_space import (
    Hyperparameter,
    ValueChoice,
    ValueRange,
    ValueTarget,
    from_dict,
    grid_of,
    read_domain,
    read_texts,
)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("32,64,128", ValueChoice((32, 64, 128))),
        ("adam, 'sgd'", ValueChoice(("adam", "sgd"))),
        ("true,false", ValueChoice((True, False))),
        ("None,0.5", ValueChoice((None, 0.5))),
        ("7", ValueChoice((7,))),
        ("[64], [64, 32]", ValueChoice(([64], [64, 32]))),
        ("1..4", ValueRange(1, 4)),
        ("16..256/16", ValueRange(16, 256, 16)),
        ("0..0.5", ValueRange(0.0, 0.5)),
        ("-1..1", ValueRange(-1, 1)),
        ("0..0.5/0.1", ValueRange(0.0, 0.5, 0.1)),
        ("log:1e-4..1e-1", ValueRange(1e-4, 1e-1, None, True)),
        ("log:1..1000", ValueRange(1, 1000, None, True)),
        ([32, 64], ValueChoice((32, 64))),
    ],
)
def test_values_are_read(text: object, domain: object) -> None:
    found = read_domain(text, "here")
    assert found == domain
    if isinstance(found, ValueRange):
        assert found.is_integer == (type(found.low) is int)
    each = Hyperparameter("x", found, ValueTarget.OPTION, (("y", (1, 2)),))
    assert from_dict(each.to_dict()) == each


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "there are no values"),
        ("4..1", "is empty: 4 is more than 1"),
        ("log:0..1", "begins at 0 or below"),
        ("log:1..8/2", "is logarithmic and has a step"),
        ("1..8/0", "a step that is not above 0"),
        ("1..x", "is no range"),
        ("0.001-0.1", "is no range"),
        ("log:5", "is no range"),
        ("3,3", "is there twice"),
        ([{}], "no number, text or list"),
    ],
)
def test_wrong_values_are_told(text: object, what: str) -> None:
    with pytest.raises(Problem, match=what) as caught:
        read_domain(text, "--search x")
    assert caught.value.where == "--search x"
    assert caught.value.remedy


def test_names_are_needed_once() -> None:
    assert list(read_texts(["a=1,2", "b=1..2"])) == ["a", "b"]
    for texts in (["1,2"], ["a=1", "a=2"]):
        with pytest.raises(Problem):
            read_texts(texts)


def test_a_grid_needs_steps() -> None:
    space = [Hyperparameter("a", ValueRange(1, 3)), Hyperparameter("b", ValueChoice(("x", "y")))]
    assert grid_of(space) == {"a": [1, 2, 3], "b": ("x", "y")}
    assert grid_of([Hyperparameter("c", ValueRange(0.0, 0.5, 0.1))])["c"][-1] == pytest.approx(0.5)
    with pytest.raises(Problem, match="no steps"):
        grid_of([Hyperparameter("c", ValueRange(0.0, 0.5))])


@pytest.mark.parametrize(
    ("name", "is_maximized"),
    [
        *[(name, True) for name in ("val_accuracy", "acc", "auc", "val_f1_score", "mean_io_u")],
        *[(name, False) for name in ("val_loss", "mae", "mean_squared_error", "perplexity")],
    ],
)
def test_the_direction_follows_from_the_name(name: str, is_maximized: bool) -> None:
    assert read_objective(name, None) == Objective(name.removeprefix("val_"), is_maximized)
    assert not read_objective(name, "min").is_maximized


def test_other_names_need_a_direction_and_metrics_have_to_exist() -> None:
    with pytest.raises(Problem, match="more of it is better"):
        read_objective("val_count", None)
    with pytest.raises(Problem, match="no val_acuracy") as caught:
        check_reported(Objective("acuracy", True), ["loss", "accuracy"])
    assert "val_accuracy" in caught.value.remedy
