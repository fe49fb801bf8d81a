"""Words of statements: those that were put together are found again, whatever stands in texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.core.problem import Problem
from edl_sql.language.tokens import Dialect, dialect_of, tables_in, tokens

HOSTILE = st.text(st.sampled_from("ab'\"`\\;()[]{}-#/*$ \nTO é世"), max_size=12)
"""What ends texts, comments and statements elsewhere."""

WORDS = st.sampled_from(["SELECT", "TO", "TRAIN", "x", "größe", "世界", "3", "1.5e-3", ",", "*"])


def quote(mark: str, content: str, dialect: Dialect) -> str:
    if dialect is Dialect.MYSQL and mark != "`":
        content = content.replace("\\", "\\\\")
    return mark + content.replace(mark, mark * 2) + mark


def texts(dialect: Dialect) -> st.SearchStrategy[str]:
    own = [st.builds(quote, st.sampled_from("'\"`"), HOSTILE, st.just(dialect))]
    if dialect is Dialect.POSTGRESQL:
        own.append(HOSTILE.filter(lambda it: "$" not in it).map(lambda it: f"$q${it}$q$"))
        own.append(HOSTILE.map(lambda it: "E" + quote("'", it.replace("\\", "\\\\"), dialect)))
    return st.one_of(own)


def comments(dialect: Dialect) -> st.SearchStrategy[str]:
    line = HOSTILE.map(lambda it: f"-- {it.replace(chr(10), '')}\n")
    block = HOSTILE.map(lambda it: f"/* {it.replace('/', '').replace('*', '')} */")
    own = [line, block]
    if dialect is Dialect.MYSQL:
        own.append(line.map(lambda it: f"#{it}"))
    if dialect is Dialect.POSTGRESQL:
        own.append(block.map(lambda it: f"/* ( {it} ' */"))
    return st.one_of(own)


def statements(dialect: Dialect) -> st.SearchStrategy[Sequence[tuple[str, bool]]]:
    """Pieces, and whether each is a word; brackets are closed."""
    word = st.one_of(WORDS, texts(dialect)).map(lambda it: [(it, True)])
    piece = st.one_of(word, comments(dialect).map(lambda it: [(it, False)]))
    return st.recursive(
        st.lists(piece, max_size=5).map(lambda each: list(chain(*each))),
        lambda inner: st.builds(
            lambda pair, within: [(pair[0], True), *within, (pair[1], True)],
            st.sampled_from(["()", "[]", "{}"]),
            inner,
        ),
        max_leaves=4,
    )


@pytest.mark.parametrize("dialect", Dialect)
@given(data=st.data())
def test_the_words_of_a_statement_are_found_again(dialect: Dialect, data: st.DataObject) -> None:
    pieces = data.draw(statements(dialect))
    text = " ".join(piece for piece, _ in pieces)
    found = list(tokens(text, dialect))
    assert [token.text for token in found] == [piece for piece, is_word in pieces if is_word]
    assert all(text[token.start : token.end] == token.text for token in found)
    depth = 0
    for token in found:
        depth -= token.text in ")]}"
        assert token.depth == depth
        depth += token.text in "([{"


@pytest.mark.parametrize("dialect", Dialect)
@given(text=HOSTILE)
def test_any_text_has_words_or_a_mistake_with_a_place(dialect: Dialect, text: str) -> None:
    ends = [0]
    with suppress(Problem):
        for token in tokens(text, dialect):
            assert ends[-1] <= token.start < token.end <= len(text)
            ends.append(token.end)
        return
    with pytest.raises(Problem) as caught:
        list(tokens(text, dialect))
    assert re.fullmatch(r"line \d+, column \d+\n  .*\n *\^", caught.value.where)


@pytest.mark.parametrize(
    ("text", "dialect", "words"),
    [
        ("5--3", Dialect.MYSQL, ["5", "-", "-", "3"]),
        ("5-- 3", Dialect.MYSQL, ["5"]),
        ("5--", Dialect.MYSQL, ["5"]),
        ("5--3", Dialect.POSTGRESQL, ["5"]),
        ("5--3\n4", Dialect.STANDARD, ["5", "4"]),
        ("$$it's$$ E'\\'' /* /* ' */ */", dialect_of("duckdb"), ["$$it's$$", "E'\\''"]),
    ],
)
def test_comments_and_texts_of_one_database(text: str, dialect: Dialect, words: list[str]) -> None:
    assert [token.text for token in tokens(text, dialect)] == words


@pytest.mark.parametrize(
    ("dialect", "tables"),
    [
        (Dialect.POSTGRESQL, ["s.people", "Pay"]),
        (Dialect.MYSQL, ["S.People", "Pay"]),
    ],
)
def test_the_tables_of_a_query(dialect: Dialect, tables: list[str]) -> None:
    query = 'SELECT a FROM S.People AS p JOIN "Pay" USING (a) WHERE a IN (SELECT a FROM other)'
    assert tables_in(query, dialect) == tables
