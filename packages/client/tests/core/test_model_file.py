"""What can be told of a model file without running it."""

from __future__ import annotations

import pytest

from edl.core.model_file import Candidate, candidates, definitions


def test_a_dotted_name_is_read_as_name_in_module_or_as_module() -> None:
    assert candidates("a.b.Name") == (
        Candidate(("a", "b"), "Name"),
        Candidate(("a", "b", "Name"), ""),
    )
    assert candidates("a") == (Candidate(("a",), ""),)
    assert Candidate(("a", "b"), "x").files == ("a/b.py", "a/b/__init__.py")


@pytest.mark.parametrize("name", ["", ".", "a..b", "a/b.py", "a-b", "a.b ", "1a"])
def test_what_is_no_dotted_name(name: str) -> None:
    assert candidates(name) == ()


SOURCE = """
import os.path, keras as k
from a import b as c, d
if True:
    conditional = 1
else:
    def other(): inner = 1
try:
    tried = 1
except Exception as error:
    excepted = 1
finally:
    at_last = 1
with open("x") as opened:
    within = 1
for index in range(3):
    looped = 1
class Model:
    attribute = 1
async def later(): pass
left, (middle, *right) = 1, (2, 3)
annotated: int = 1
(walrus := 3)
match 1:
    case 1:
        matched = 1
model.compile = 1
"""


def test_all_ways_to_make_a_name() -> None:
    found = definitions(SOURCE, "m.py")
    assert found.complete
    assert found.names >= {
        "os", "k", "c", "d", "conditional", "other", "tried", "excepted", "at_last", "opened",
        "within", "index", "looped", "Model", "later", "left", "middle", "right", "annotated",
        "walrus", "matched",
    }  # fmt: skip
    assert not found.names & {"inner", "attribute", "compile", "b", "keras"}
    assert found.lacks("inner")
    assert not found.lacks("Model")


@pytest.mark.parametrize(
    "source",
    [
        "from x import *",
        "globals()['model'] = 1",
        "def __getattr__(name): return 1",
        "exec('model = 1')",
        "if True:\n    setattr(m, 'model', 1)",
    ],
)
def test_where_names_may_come_from_elsewhere_nothing_is_missed(source: str) -> None:
    assert not definitions(source, "m.py").lacks("model")


def test_what_runs_later_makes_no_names_now() -> None:
    assert definitions("def f():\n    globals()['model'] = 1", "m.py").lacks("model")


def test_invalid_python_is_reported_with_its_place() -> None:
    with pytest.raises(SyntaxError) as caught:
        definitions("a = 1\ndef (:\n", "zoo/m.py")
    assert (caught.value.filename, caught.value.lineno) == ("zoo/m.py", 2)
