"""What source travels with a model, and what is refused."""

from __future__ import annotations

import linecache
import math
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from edl.plugins.errors import Problem
from edl_keras.source_code import NoExpression, SourceCode

SCRIPT = """
import math
import helpers
import numpy as np
from helpers import half
from keras import layers

STEPS = [1, 2.5, "three"]
TABLE = np.arange(4)
RANDOM = np.random.default_rng(7)
x = object()  # a parameter of functions, too


def scale(value):
    return value * STEPS[1]


class Base:
    def __init__(self, units=8):
        self.units = units


class Own(Base):
    '''Has a docstring.'''

    def call(self, x):
        return scale(half(x)) + math.pi + TABLE.sum() + helpers.ONE

    def draw(self):
        return RANDOM.integers(10)


def outer(width):
    class Inner(Base):
        def width(self):
            return width

    def inner(labels):
        return Inner().width() * labels

    return Inner, inner


one, two = (lambda a: a + 1), (lambda a: a + 2)
Class, function = outer(5)
"""
HELPERS = """
from more import deep

ONE = 1


def half(value):
    return value / 2
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The global names of a script, which is ``__main__``."""
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "__init__.py").write_text("")
    (tmp_path / "more" / "deep.py").write_text("import keras\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    for name in ("helpers", "more", "more.deep"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    main = sys.modules["__main__"]
    names = vars(main)
    before = dict(names)
    exec(compile(SCRIPT, str(file), "exec"), names)
    try:
        yield names
    finally:
        names.clear()
        names.update(before)


def run(code: SourceCode) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "edl_fit_code"}
    exec(code.text, found)
    return found


def test_a_class_travels_with_all_that_it_uses(script: dict[str, Any]) -> None:
    code = SourceCode()
    assert code.add(script["Own"]) == "Own"
    made = run(code)["Own"](4)
    assert made.units == 4
    assert made.call(2) == script["Own"](4).call(2) == 2.5 + math.pi + 6 + 1
    assert made.draw() == np.random.default_rng(7).integers(10)
    assert "object()" not in code.text, "a parameter is no global name"
    assert [str(place) for place in code.modules.files] == [
        *("helpers.py", "more/__init__.py", "more/deep.py"),
    ]


def test_definitions_in_functions_travel_with_the_variables_there(script: dict[str, Any]) -> None:
    code = SourceCode()
    code.add(script["Class"])
    name = code.add(script["function"])
    assert run(code)[name](3) == 15


def test_the_right_one_of_two_lambdas_of_a_line_travels(script: dict[str, Any]) -> None:
    code = SourceCode()
    names = [code.add(script[name]) for name in ("two", "one", "two")]
    made = run(code)
    assert names[0] == names[2]
    assert [made[name](1) for name in names] == [3, 2, 3]


def test_what_is_installed_is_imported() -> None:
    code = SourceCode()
    name = code.add(keras.losses.MeanSquaredError)
    assert run(code)[name] is keras.losses.MeanSquaredError
    assert not code.modules.files


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, -0.5, "text", b"octets", [1, (2, 3)], {"a": {1}}, Path("/tmp")),
        *(np.float32(1.5), np.arange(6).reshape(2, 3), np.array(["a", "bc"])),
    ],
)
def test_plain_values_are_expressions(value: Any) -> None:
    code = SourceCode()
    text = code.expression(value)
    np.testing.assert_equal(eval(text, run(code)), value)


def test_objects_of_keras_are_made_of_their_configurations() -> None:
    code = SourceCode()
    text = code.expression(keras.optimizers.schedules.CosineDecay(0.5, 10))
    made = eval(text, run(code))
    assert float(made(0)) == 0.5
    built = keras.layers.Dense(1)
    built.build((None, 2))
    with pytest.raises(NoExpression):
        code.expression(built)


def test_a_value_that_cannot_travel_is_named(script: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "second.py"
    file.write_text("def use():\n    return handle.read()\n")
    exec(compile(file.read_text(), str(file), "exec"), script)
    with file.open() as handle:
        script["handle"] = handle
        with pytest.raises(Problem, match="use uses handle, _io TextIOWrapper, which cannot"):
            SourceCode().add(script["use"])


def test_the_newest_cell_of_a_notebook_counts(script: dict[str, Any]) -> None:
    """IPython gives each cell a file name of its own, and the lines to ``linecache``."""
    cells = ("WIDTH = 2\n", "class Cell:\n    def get(self):\n        return WIDTH\n")
    bare = "class Bare(Cell):\n    pass\n"
    for number, text in enumerate((*cells, cells[1].replace("WIDTH", "WIDTH + 1"), bare)):
        name = f"/tmp/ipykernel_1/{number}.py"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), script)
    script.pop("__file__", None)
    code = SourceCode()
    code.add(script["Bare"])
    assert run(code)["Bare"]().get() == 3


def test_what_has_no_source_is_refused() -> None:
    found: dict[str, Any] = {"__name__": "__main__"}
    exec("def typed(a):\n    return a\n", found)
    with pytest.raises(Problem, match="there is no source of typed") as caught:
        SourceCode().add(found["typed"])
    assert "script, a module or a cell" in caught.value.remedy


def test_two_things_of_one_name_are_refused(script: dict[str, Any]) -> None:
    code = SourceCode()
    code.add(script["scale"])
    other: dict[str, Any] = {}
    exec(compile("def scale(a):\n    return a\n", script["__file__"], "exec"), other)
    with pytest.raises(Problem, match="scale means two different things"):
        code.add(other["scale"])
