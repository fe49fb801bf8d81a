"""Count private idioms in sources, tests and scripts, and fail where a folder exceeds its budget.

    python tools/words.py                       print the counts of each package
    python tools/words.py --list proto          also print each finding below packages/proto
    python tools/words.py --check               also exit 1 if a package exceeds its budget

The rules find the worst of what a native engineer would stumble over: they are no judges of style.
A budget may only fall. Who mends a package lowers its budget; who moves modules to another package
moves their share of the budget along.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

BUDGETS: dict[str, int] = {}
"""The number of findings that the sources or tests of each package may have; what is not listed may
have none."""

_FRAGMENT = re.compile(
    r"(Of|As|For|In|From|With|Without|At|By|Like|Not|Also|None|Nothing:?|Those|Them|Same|Shown"
    r"|Overridden|Given|Another|Who|What|Whose|Reason|See|The same)\b(?! is | are | was | has )"
)
"""The beginning of a docstring whose first line is no sentence: of a function or a class, as a
module's docstring may name a topic."""

_PARTICIPLE = re.compile(r"\w{2,}(?<!e)ed|un\w+ed")
_IRREGULAR = {
    "begun", "bound", "broken", "brought", "built", "chosen", "done", "drawn", "found", "given",
    "gone", "held", "hidden", "kept", "known", "left", "lost", "made", "met", "paid", "said",
    "seen", "sent", "shown", "spent", "spoken", "spoilt", "taken", "told", "torn", "understood",
    "unread", "worn", "written",
}  # fmt: skip
_VERBS = {"embed", "shed", "succeed"}
"""Verbs that look like participles."""
_PRESCRIBED = {"branched", "Fixed"}
"""Methods of libraries that classes here have, too: of fsspec's callbacks and of KerasTuner."""

_PERSONS = re.compile(r"(nobody|somebody|everybody|anybody|whoever|whomever)", re.IGNORECASE)
_CONSTANT = re.compile(
    r"_+(NEVER|ALWAYS)|_*(LOOK|AGAIN|INSTEAD|HERE|THERE|ENOUGH|OFTEN|SOON)(_S)?"
    r"|\w*_AGAIN(_\w+)?|_*(MOST|LEAST|FEWEST|WIDEST|GREATEST|LONGEST|LARGEST)(_\w+)?"
)
"""The choices of an option may be ALWAYS and NEVER, but no private constant."""

_TERMS = re.compile(r"(?<![a-z])(companions?|figures)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One private idiom, and the line that has it."""

    rule: str
    line: int
    text: str


RULES = ("fragment", "participle", "persons", "constant", "term")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 above a budget")
    parser.add_argument("--list", metavar="FOLDER", help="print the findings below packages/FOLDER")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout to count in")
    chosen = parser.parse_args()
    problems = []
    print(f"{'':16}{''.join(f'{rule:>12}' for rule in RULES)}{'all':>8}{'budget':>8}")
    for folder, name in _folders(chosen.root):
        counts = count(folder)
        budget = BUDGETS.get(name, 0)
        print(
            f"{name:16}{''.join(f'{counts[rule]:>12}' for rule in RULES)}{counts.total():>8}"
            f"{budget:>8}"
        )
        if counts.total() > budget:
            problems.append(
                f"{name}: {counts.total()} private idioms, and the budget is {budget}: see "
                f"python tools/words.py --list {name}"
            )
    if chosen.list:
        below = chosen.root / "packages" / chosen.list
        for path in _modules(below if below.is_dir() else chosen.root / chosen.list):
            for found in find_idioms(path.read_text()):
                place = path.relative_to(chosen.root)
                print(f"{place}:{found.line}: {found.rule}: {found.text}")
    print("\n".join(problems) or "all within their budgets")
    return 1 if chosen.check and problems else 0


def count(folder: Path) -> Counter[str]:
    """Return the number of findings in the modules of a folder, by rule."""
    return Counter(
        finding.rule for path in _modules(folder) for finding in find_idioms(path.read_text())
    )


def find_idioms(source: str) -> Iterator[Finding]:
    """Find the private idioms of one module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            if _FRAGMENT.match(summary):
                yield Finding("fragment", node.lineno, f"{node.name}: {summary}")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_participle(node):
            yield Finding("participle", node.lineno, node.name)
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and _CONSTANT.fullmatch(node.id)
        ):
            yield Finding("constant", node.lineno, node.id)
    for number, line in enumerate(source.splitlines(), 1):
        if _PERSONS.search(line):
            yield Finding("persons", number, line.strip())
        if _TERMS.search(line):
            yield Finding("term", number, line.strip())


def _is_participle(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a function has a bare participle as its name.

    Values may be adjectives: a property, or a fixture of pytest. Some libraries prescribe names.
    """
    word = node.name.strip("_")
    if (
        word in _VERBS | _PRESCRIBED
        or not (word in _IRREGULAR or _PARTICIPLE.fullmatch(word))
        or "_" in word
    ):
        return False
    decorators = map(ast.unparse, node.decorator_list)
    return not any("property" in each or "fixture" in each for each in decorators)


def _folders(root: Path) -> Iterator[tuple[Path, str]]:
    for package in sorted((root / "packages").iterdir()):
        for part in ("src", "tests"):
            if (package / part).is_dir():
                name = package.name if part == "src" else f"{package.name}/tests"
                yield package / part, name
    for name in ("tests", "tools", "bench", "deploy", "model_zoo", "examples"):
        yield root / name, name


def _modules(folder: Path) -> Iterator[Path]:
    """Yield the modules that people write, without those that contain this lint's patterns."""
    own = {"words.py", "test_words.py"}
    modules = (path for path in sorted(folder.rglob("*.py")) if path.name not in own)
    return (path for path in modules if path.parent.name != "v1")  # the stubs of protoc


if __name__ == "__main__":
    sys.exit(main())
