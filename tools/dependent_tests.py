"""Tests that may depend on the user who runs them, or on the machine's programs.

A test may if it, or a fixture, function or value of its module that it uses, mentions users,
rights, devices or programs. All other tests do the same for every user of every machine.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

_WORDS = re.compile(
    r"geteuid|getuid|chmod|chown|/proc/(?!self)|/dev/|which\(|require_program|Permission|\bmount|dockerd?\b"
)
"""Words in the text of what may depend on the user, or on the machine's programs."""


def find(path: Path) -> list[str]:
    """Return the names of such tests of a module, as pytest takes them: ``test_a``, ``TestB``."""
    text = path.read_text()
    if not _WORDS.search(text):
        return []
    parts = _divide(text)
    dependent = {name for name, part in parts.items() if _WORDS.search(part)}
    while more := {
        name
        for name in parts.keys() - dependent
        if any(re.search(rf"\b{used}\b", parts[name]) for used in dependent)
    }:
        dependent |= more
    tests = [name for name in parts if re.match("test_|Test", name)]
    every = any("autouse=True" in parts[name] for name in dependent)
    return tests if every else [name for name in tests if name in dependent]


def _divide(text: str) -> dict[str, str]:
    """Return the text of each function, class and value of a module, by name."""
    lines = text.splitlines()
    parts: dict[str, str] = {}
    for node in ast.parse(text).body:
        decorators = getattr(node, "decorator_list", ())
        first = min((each.lineno for each in (*decorators, node)), default=node.lineno)
        part = "\n".join(lines[first - 1 : node.end_lineno])
        for name in _names(node):
            parts[name] = parts.get(name, "") + part
    return parts


def _names(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines; an unused one for any other."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
