"""Measure the shape of the code base, and fail where it outgrows its limits.

    python tools/structure.py            print the statistics of each package
    python tools/structure.py --check    also exit 1 if a limit is exceeded

Ruff gates complexity, argument counts and docstrings; import-linter gates who may import whom.
This tool gates what neither can: the length of modules, the width of classes, class names
that mean several things, and exceptions from the rules of ruff and mypy that give no reason.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULE_LINES = 400
PUBLIC_METHODS = 12
CHECKED = ("bench", "deploy", "model_zoo", "packages", "tests", "tools")

# Names that mean the same thing in every service: its composition root, its settings, …
_SERVICE_PARTS = {"App", "Config", "Metrics", "Server", "Tick"}
# Terms of the protocol between master and worker. Neither package imports the other, and their
# cores do not import protobuf, so each has a type of its own for the same thing.
_TERMS_OF_MASTER_AND_WORKER = {
    "Generation", "HeartbeatAnswer", "Holding", "JobType", "Lease", "MetricState", "PushOutcome",
    "TaskKey", "TaskType", "VersionOrigin",
}  # fmt: skip
# Terms of the build protocol, for the same reason on the sides of client and builder.
_TERMS_OF_CLIENT_AND_BUILDER = {"BuildRequest", "BuildStatus"}
# An error as plain data: ``edl.v1.Error`` or its counterpart in the builder.
_ERRORS = {"Failure"}
SAME_ROLE = _SERVICE_PARTS | _TERMS_OF_MASTER_AND_WORKER | _TERMS_OF_CLIENT_AND_BUILDER | _ERRORS

WIDE_CLASSES = {
    # One state whose invariants range over all its parts: rounds, leases and the counts of what
    # is closed change together. See docs/ledger.md.
    "Ledger": "the state of all tasks",
    "PushLedger": "the state of all pushes: tokens, counts and permits decide together",
    # Facades that hold one lock: each call of the parameter protocol is a method.
    "Coordinator": "the calls of the parameter protocol, under one lock",
    "LockedShard": "the calls of a parameter server, under one lock",
    "ParameterStore": "the values and slots of one layout, read and updated as a whole",
    "Tables": "the same for the rows of embedding tables",
    # Test doubles: a method for each call of the protocol, and controls for tests.
    "FakeWorker": "test double of a worker",
    "ParameterServerConformance": "a test suite: a method for each rule",
}
"""Classes with more public methods than the limit, and what holds each of them together."""

LONG_MODULES = {
    # Of tests; a module of a distribution was never worth an exception.
    "packages/client/tests/conformance/test_job_backend.py": "the suite of one port",
    "packages/master/tests/core/simulation.py": "one random job: what it does and what must hold",
    "packages/master/tests/scenarios/transcript.py": "one grammar: it runs and writes transcripts",
}
"""Modules with more lines than the limit, and why they are not split."""

_WITHOUT_REASON = re.compile(r"# (noqa(: [A-Z0-9, ]+)?|type: ignore(\[[a-z, -]+\])?)$")
"""The end of a line that is an exception from a rule: ``# noqa: X  (why)``, or
``# type: ignore[x]  # why``, would say why."""


@dataclass
class Package:
    """The statistics of one distribution."""

    name: str
    root_modules: int = 0
    lines: int = 0
    test_lines: int = 0
    long_modules: list[tuple[str, int]] = field(default_factory=list)
    wide_classes: list[tuple[str, str]] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is exceeded")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout to measure")
    chosen = parser.parse_args()
    packages, repeated = measure(chosen.root)
    print(f"{'package':12}{'modules at root':>16}{'lines':>8}{'tests':>8}")
    for package in packages:
        print(
            f"{package.name:12}{package.root_modules:>16}{package.lines:>8}{package.test_lines:>8}"
        )
    long = {place: lines for package in packages for place, lines in package.long_modules}
    long.update(long_tests(chosen.root))
    wide = {name: found for package in packages for name, found in package.wide_classes}
    problems = [
        *(f"over {MODULE_LINES} lines: {at} ({long[at]})" for at in long.keys() - LONG_MODULES),
        *(
            f"over {PUBLIC_METHODS} public methods: {name} in {wide[name]}"
            for name in wide.keys() - WIDE_CLASSES
        ),
        *(
            f"one name, several classes: {name}: {', '.join(at)}"
            for name, at in repeated
            if name not in SAME_ROLE
        ),
        *(f"exception without a reason: {at}" for at in exceptions_without_reason(chosen.root)),
        *(f"allowed without need: {at}" for at in LONG_MODULES.keys() - long),
        *(f"allowed without need: {name}" for name in WIDE_CLASSES.keys() - wide),
        *(f"allowed without need: {name}" for name in SAME_ROLE - dict(repeated).keys()),
    ]
    print("\n".join(sorted(problems)))
    print(f"{len(problems)} over the limits")
    return 1 if chosen.check and problems else 0


def measure(root: Path) -> tuple[list[Package], list[tuple[str, list[str]]]]:
    """Measure all distributions of a checkout.

    Returns:
        The statistics of each distribution; and the names of public classes, also within functions,
        that are defined more than once outside of tests, with the modules that define them.
    """
    packages = []
    defined: dict[str, list[str]] = defaultdict(list)
    for folder in sorted((root / "packages").iterdir()):
        if not (folder / "src").is_dir():
            continue
        package = Package(folder.name)
        for path in _modules(folder / "src"):
            _measure_module(path, root, package, defined)
        package.test_lines = sum(_lines(path) for path in folder.glob("tests/**/*.py"))
        packages.append(package)
    repeated = [(name, places) for name, places in sorted(defined.items()) if len(places) > 1]
    return packages, repeated


def long_tests(root: Path) -> Iterator[tuple[str, int]]:
    """Modules outside of distributions, tests above all, over the limit; with their lines."""
    for folder in CHECKED:
        for path in sorted((root / folder).rglob("*.py")):
            place = path.relative_to(root)
            if "src" not in place.parts[:3] and (lines := _lines(path)) > MODULE_LINES:
                yield str(place), lines


def exceptions_without_reason(root: Path) -> Iterator[str]:
    """Lines that are exempt from a rule of ruff or mypy and do not say why, as ``path:line``."""
    for folder in CHECKED:
        for path in sorted((root / folder).rglob("*.py")):
            if path.parent.name == "v1":
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if _WITHOUT_REASON.search(line):
                    yield f"{path.relative_to(root)}:{number}"


def _modules(source: Path) -> Iterator[Path]:
    """Modules that people write: not the stubs that protoc generates."""
    return (path for path in sorted(source.rglob("*.py")) if path.parent.name != "v1")


def _lines(path: Path) -> int:
    return path.read_text().count("\n")


def _measure_module(
    path: Path, root: Path, package: Package, defined: dict[str, list[str]]
) -> None:
    lines = _lines(path)
    place = str(path.relative_to(root / "packages"))
    package.lines += lines
    if lines > MODULE_LINES:
        package.long_modules.append((place, lines))
    if path.parent.parent.name == "src" and not path.stem.startswith("__"):
        package.root_modules += 1
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        defined[node.name].append(place)
        methods = [one for one in node.body if _is_public_method(one)]
        if len(methods) > PUBLIC_METHODS:
            package.wide_classes.append((node.name, f"{place} ({len(methods)})"))


def _is_public_method(node: ast.stmt) -> bool:
    """Properties are not counted: they read like attributes."""
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
        return False
    decorators = {one.id for one in node.decorator_list if isinstance(one, ast.Name)}
    return not decorators & {"property", "cached_property"}


if __name__ == "__main__":
    sys.exit(main())
