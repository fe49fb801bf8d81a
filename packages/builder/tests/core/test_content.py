"""Keys, recipes, secrets."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from edl_builder.core.content import Runtime, Zoo, ZooFile, content_key
from edl_builder.core.identifiers import Key
from edl_builder.core.recipe import PackageIndex, dockerfile
from edl_builder.core.redaction import Redactor

FILES = (ZooFile("a.py", "1"), ZooFile("b/c.py", "2", True), ZooFile("l", target="a.py"))
RUNTIME = Runtime((("w.whl", "3"),), ("edl-worker",))


def key(
    files: tuple[ZooFile, ...] = FILES,
    base: str = "sha256:0",
    runtime: Runtime = RUNTIME,
    recipe: str = "FROM x",
    repository: str = "r.com/a",
    **labels: str,
) -> Key:
    return content_key(Zoo(files, 10), base, runtime, recipe, labels, repository)


def test_the_order_of_an_archive_does_not_count() -> None:
    shuffled = list(FILES)
    random.Random(1).shuffle(shuffled)
    assert key(tuple(shuffled)) == key()
    assert len(key()) == 64


def test_everything_else_counts() -> None:
    others = [
        key((ZooFile("a.py", "9"), *FILES[1:])),
        key((ZooFile("a.pyc", "1"), *FILES[1:])),
        key((ZooFile("a.py", "1", True), *FILES[1:])),
        key((*FILES[:2], ZooFile("l", target="b/c.py"))),
        key(FILES[:2]),
        key(base="sha256:1"),
        key(runtime=Runtime((("w.whl", "4"),), ("edl-worker",))),
        key(runtime=Runtime((("w.whl", "3"),), ("edl-worker[cpu]",))),
        key(recipe="FROM y"),
        key(repository="r.com/b"),
        key(team="a"),
        key(team="b"),
    ]
    assert len({key(), *others}) == len(others) + 1


@given(st.lists(st.tuples(st.text(), st.text()), unique_by=lambda p: p[0], max_size=4))
def test_names_cannot_be_moved_into_contents(pairs: list[tuple[str, str]]) -> None:
    files = tuple(ZooFile(path, sha) for path, sha in pairs)
    swapped = tuple(ZooFile(sha, path) for path, sha in pairs)
    assert (key(files) == key(swapped)) == (sorted(files) == sorted(swapped))


def test_the_code_lies_above_the_requirements_and_the_worker() -> None:
    recipe = dockerfile(
        "x.com/base@sha256:0", RUNTIME, True, PackageIndex("https://i/simple")
    ).split("\n")
    request = [
        next(n for n, line in enumerate(recipe) if part in line)
        for part in ("FROM x.com/base", "edl-worker", "-r /opt", "COPY zoo/ /", "USER 10")
    ]
    assert request == sorted(request)
    assert recipe[-2] == "USER 10001:10001"


def test_a_recipe_quotes_what_the_operator_sets() -> None:
    recipe = dockerfile(
        "b", Runtime((), ("edl-worker[cpu]>=1; x",)), False, PackageIndex("https://x/;id")
    )
    assert "'edl-worker[cpu]>=1; x'" in recipe
    assert "'https://x/;id'" in recipe


def test_secrets_are_taken_out() -> None:
    redact = Redactor(["hunter22", "x", "hunter22-and-more"])
    text = "pw hunter22-and-more at https://me:pass@x.com/a, Authorization: Basic aHVudGVyMjI6eA=="
    clean = redact(text)
    assert "hunter22" not in clean
    assert "pass" not in clean
    assert "aHVud" not in clean
    assert "https://***@x.com/a" in clean
    assert redact("plain text, basic idea") == "plain text, basic idea"


@given(st.text(min_size=4, max_size=20), st.text(), st.text())
def test_no_known_secret_survives(secret: str, before: str, after: str) -> None:
    clean = Redactor([secret])(before + secret + after)
    assert secret not in clean.replace("***", "\0" if "\0" not in secret else "\1")
