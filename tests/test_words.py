"""``tools/words.py`` finds private idioms, and leaves plain English alone."""

import pytest

from tools.words import find_idioms


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('def size():\n    """Of the file."""', "fragment"),
        ('def size():\n    """The same, in bytes."""', "fragment"),
        ("def _written(): pass", "participle"),
        ("def unpacked(): pass", "participle"),
        ("# Nobody reads this.", "persons"),
        ("def skip_what_nobody_reads(): pass", "persons"),
        ("_LOOK = 5", "constant"),
        ("_NEVER = -1", "constant"),
        ("_TRY_AGAIN_S = 5", "constant"),
        ("_MOST_A_MINUTE = 5", "constant"),
        ("print(companion_of(job))", "term"),
        ("x = 1  # figures of the job", "term"),
    ],
)
def test_private_idioms_are_found(source: str, rule: str) -> None:
    assert [finding.rule for finding in find_idioms(source)] == [rule]


@pytest.mark.parametrize(
    "source",
    [
        'def size():\n    """Return the size of the file."""',
        'def size():\n    """The size of the file."""',
        "def read(): pass",
        "def succeed(): pass",
        "def is_closed(): pass",
        "class A:\n    @property\n    def closed(self): pass",
        "_MAX_PER_MINUTE = 5",
        'class Color(StrEnum):\n    NEVER = "never"',
        "# Another process reads this.",
    ],
)
def test_plain_english_is_left_alone(source: str) -> None:
    assert not list(find_idioms(source))
