"""Check what changed since the main branch, in at most about two minutes.

    ./dev check

Lint and import contracts of everything, types and tests of the packages that changed. The tests
run in the order of their distance from the changed modules, until the time is over.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import workspace
from workspace import ROOT, Package

BUDGET_S = 110
MIN_TESTS_S = 30
"""Seconds for the tests, even if all else took long, as a first run of mypy does."""
BIN = Path(sys.executable).parent
FAR = 1_000
"""The distance of a test that reaches no changed module."""


def main() -> int:
    start = time.monotonic()
    changed = find_changes()
    touched = [
        package
        for folder, package in workspace.packages().items()
        if any(path.startswith(code_of(folder)) for path in changed)
    ]
    failed = [name for name, command in list_checks(touched) if run(name, command)]
    deadline = max(BUDGET_S - (time.monotonic() - start), MIN_TESTS_S) + time.monotonic()
    left_out = []
    for number, package in enumerate(touched):
        share = (deadline - time.monotonic()) / (len(touched) - number)
        code, skipped = run_tests(package, changed, share)
        failed += [f"tests of {package.folder}"] if code else []
        left_out += [f"{skipped} tests of {package.folder} for want of time"] if skipped else []
    others = [
        folder for folder in workspace.packages() if folder not in {p.folder for p in touched}
    ]
    left_out += [f"types and tests of {', '.join(others)}"] if others else []
    left_out.append("tests of the product (./dev test)")
    verdict = f"failed: {', '.join(failed)}" if failed else "passed"
    print(f"check: {verdict}")
    print(f"check: {time.monotonic() - start:.0f} s, left out: {'; '.join(left_out)}")
    return bool(failed)


def find_changes() -> list[str]:
    """Return the files that differ from the main branch: committed, edited, or new."""
    base = next(
        (git("merge-base", name, "HEAD") for name in ("main", "origin/main") if ref(name)), ""
    )
    names = git("diff", "--name-only", base.strip() or "HEAD").splitlines()
    return sorted({*names, *git("ls-files", "--others", "--exclude-standard").splitlines()})


def code_of(folder: str) -> tuple[str, str]:
    """Return where sources and tests of a package lie."""
    return f"packages/{folder}/src/", f"packages/{folder}/tests/"


def git(*arguments: str) -> str:
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def ref(name: str) -> bool:
    """Return whether git knows this name."""
    command = ("git", "rev-parse", "--verify", "--quiet", name)
    return not subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode


def list_checks(touched: list[Package]) -> list[tuple[str, list[str]]]:
    """Return names and commands of all checks but the tests."""
    sources = [f"packages/{package.folder}/src" for package in touched]
    python = str(BIN / "python")
    return [
        ("ruff", [str(BIN / "ruff"), "check", "--quiet", "."]),
        ("format", [str(BIN / "ruff"), "format", "--quiet", "--check", "."]),
        ("structure", [python, "tools/structure.py", "--check"]),
        ("words", [python, "tools/words.py", "--check"]),
        ("imports", [str(BIN / "lint-imports")]),
        *([("types", [str(BIN / "mypy"), *sources])] if sources else []),
    ]


def run(name: str, command: list[str]) -> bool:
    """Run a check, print what it says if it fails, and return whether it did."""
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        print(done.stdout)
    verdict = "FAILED" if done.returncode else "passed"
    print(f"check: {name} {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
    return done.returncode != 0


def run_tests(package: Package, changed: list[str], seconds: float) -> tuple[int, int]:
    """Run the tests of a package, nearest first; return the exit code and how many had no time."""
    files = sort_tests(package, changed)
    if not files:
        return 0, 0
    report = ROOT / "build" / "check-left-out"
    report.parent.mkdir(exist_ok=True)
    report.write_text("")
    environ = os.environ | {
        "EDL_CHECK_DEADLINE": str(time.time() + seconds),
        "EDL_CHECK_LEFT_OUT": str(report),
        "PYTHONPATH": str(ROOT / "tools"),
    }
    done = subprocess.run(
        [
            *(str(BIN / "python"), "-m", "pytest", "-q", "-p", "check_deadline"),
            *("-n", str(min(4, os.cpu_count() or 1)), "--dist", "load", "--maxschedchunk", "1"),
            *files,
        ],
        cwd=ROOT,
        env=environ,
        check=False,
    )
    # 5: no test was collected.
    return (0 if done.returncode == 5 else done.returncode), len(report.read_text().splitlines())


def sort_tests(package: Package, changed: Iterable[str]) -> list[str]:
    """Return the test modules of a package, in the order of their distance from what changed."""
    folder = f"packages/{package.folder}"
    distances = measure_distances(package, [path for path in changed if path.startswith(folder)])
    found = []
    for path in sorted((ROOT / folder / "tests").rglob("test_*.py")):
        name = str(path.relative_to(ROOT))
        near = [distances.get(module, FAR) for module in find_imports(path)]
        found.append((0 if name in changed else min(near, default=FAR) + 1, name))
    return [name for _, name in sorted(found)]


def measure_distances(package: Package, changed: Iterable[str]) -> dict[str, int]:
    """Return by how many imports each module of a package is away from a changed one."""
    source = ROOT / "packages" / package.folder / "src"
    importers: dict[str, set[str]] = {}
    for path in source.rglob("*.py"):
        for imported in find_imports(path):
            importers.setdefault(imported, set()).add(module_name(path, source))
    distances = {
        module_name(ROOT / path, source): 0
        for path in changed
        if path.endswith(".py") and "/src/" in path
    }
    waiting = deque(distances)
    while waiting:
        module = waiting.popleft()
        for importer in importers.get(module, set()) - distances.keys():
            distances[importer] = distances[module] + 1
            waiting.append(importer)
    return distances


def module_name(path: Path, source: Path) -> str:
    """Return the dotted name of the module in a file."""
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_imports(path: Path) -> set[str]:
    """Return what a module imports: of ``from a import b`` both ``a`` and ``a.b``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


if __name__ == "__main__":
    sys.exit(main())
