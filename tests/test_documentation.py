"""What the documents show runs as they show it."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import first_hour
import pytest
from conftest import ROOT, Edl, readme_blocks


@pytest.mark.own_start
@pytest.mark.smoke
def test_the_readme_s_commands_work_in_order(edl: Edl, tmp_path: Path) -> None:
    """Word for word; those with the demo's model are in ``test_predictions.py``."""
    blocks = readme_blocks()
    (source,) = (block for language, block in blocks if language == "python")
    set_up, init, train, *_ = (block for language, block in blocks if not language)
    assert "./dev demo" in set_up
    done = edl.shell(init.removeprefix(". .venv/bin/activate\n") + train, cwd=tmp_path)
    assert (tmp_path / "my_zoo" / "circle.py").read_text() == source
    assert done.out.count("x,y,label,prediction\n") == 1, "head shows it"
    rows = [row.split(",") for row in (tmp_path / "predictions.csv").read_text().splitlines()[1:]]
    right = [(float(prediction) > 0.5) == (label == "1") for _, _, label, prediction in rows]
    assert len(rows) == 500
    assert sum(right) / len(rows) > 0.8
    jobs = [edl.status(name) for name in edl("list", "-o", "name").out.split()]
    assert [job["state"] for job in jobs] == 3 * ["SUCCEEDED"]


def test_the_recording_has_the_commands_that_the_readme_has() -> None:
    text = (ROOT / "docs" / "first-hour.md").read_text()
    for block in first_hour.commands((ROOT / "README.md").read_text()):
        for command in block:
            if command != first_hour.NOT_RUN:
                _, found, text = text.partition(f"$ {command}\n")
                assert found, f"tools/first_hour.py has to record {command!r} again"


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/*/*.md")]:
        for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text()):
            place = page.parent / target if target else page
            assert place.exists(), f"{page}: {target}"
            if heading and place.suffix == ".md":
                assert heading in anchors(place), f"{page}: {target}#{heading}"


def test_tests_that_documents_name_exist() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for file, name in re.findall(
            r"`((?:packages/\w+/)?tests/[\w/]+\.py)::(\w+)`", page.read_text()
        ):
            end = "" if name.endswith("_") else r"\("
            found = re.search(rf"^ *def {name}{end}", (ROOT / file).read_text(), re.M)
            assert found, f"{page.name}: {file}::{name}"


def anchors(page: Path) -> set[str]:
    """The names by which links lead to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    titles = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in re.findall(r"^#+ (.*)", text, re.M)
    ]
    return {re.sub(r"[^\w -]", "", one.lower()).strip().replace(" ", "-") for one in titles}


def test_modules_that_documents_name_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for named in re.findall(r"`([\w./-]+/[\w-]+\.py)`", page.read_text()):
            if named.startswith(("DIR/", "my_zoo/")):  # the reader's own folder
                continue
            below = ("src/*", "src", "tests")
            places = [named, *(f"packages/*/{folder}/{named}" for folder in below)]
            assert any(list(ROOT.glob(place)) for place in places), f"{page.name}: no {named}"


def test_every_step_of_a_walkthrough_names_modules_of_its_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    walkthroughs = re.findall(r"^## (Walkthrough: .*?)(?=^## )", text, re.S | re.M)
    assert len(walkthroughs) == 5
    for walkthrough in walkthroughs:
        named = re.findall(r"`([\w/]+\.py)`", walkthrough)
        assert len(named) > 5, walkthrough.splitlines()[0]
        for name in named:
            place = name if name.startswith("edl_") else f"*/{name}"
            assert list(ROOT.glob(f"packages/*/src/{place}")), (
                f"{walkthrough.splitlines()[0]}: no {name}"
            )


def test_the_glossary_is_short_and_names_modules_that_exist() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| term | meaning")
    ]
    assert 30 <= len(rows) <= 50
    for term, meaning, module in rows:
        assert meaning, term
        path = module.strip("` |")
        assert list(ROOT.glob(f"packages/*/src/{path}")), f"{term}: there is no {path}"


THREADS = {
    "Thread": "name",
    "Timer": "name",  # which it does not take: a thread with a name waits instead
    "ThreadPoolExecutor": "thread_name_prefix",
    "SerialExecutor": 0,
    "BackgroundCall": 0,
    "run_in_background": 0,
}
"""What starts threads, and its argument with their name."""


def thread_names(source: str) -> list[tuple[int, str | None]]:
    """The lines that start threads, with the names; None without one, "" if it is computed."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        argument = THREADS.get(called)
        if argument is None:
            continue
        if isinstance(argument, int):
            given: ast.expr | None = node.args[argument]
        else:
            named = [each.value for each in node.keywords if each.arg == argument]
            given = named[0] if named else None
        name: str | None = None if given is None else ""
        if isinstance(given, ast.Constant):
            name = str(given.value)
        found.append((node.lineno, name))
    return found


def test_the_page_about_concurrency_has_every_thread() -> None:
    page = (ROOT / "docs" / "concurrency.md").read_text()
    started = set()
    for module in sorted(ROOT.glob("packages/*/src/**/*.py")):
        if "edl_testing" in module.parts:
            continue
        for line, name in thread_names(module.read_text()):
            place = f"{module.relative_to(ROOT)}:{line}"
            assert name is not None, f"{place}: a thread without a name"
            assert not name or f"`{name}`" in page, f"{place}: {name} is not on the page"
            started.add(name)
    assert len(started) > 40
    rows = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \| [^|]*\| [^|]* \| `[^|]*\.py`", page, re.M)
    on_page = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert len(on_page) > 40
    # Of a library, one whose name has a number, and arguments of accept_connections.
    computed = {"OtelBatchSpanRecordProcessor", "server-N", "direct-call", "ring-greet"}
    assert on_page - started == computed


LOCK = re.compile(r"threading\.(Lock|RLock|Condition|Semaphore|BoundedSemaphore)\(")


def test_the_page_about_concurrency_has_every_module_with_a_lock() -> None:
    page = (ROOT / "docs" / "concurrency.md").read_text()
    found = 0
    for module in sorted(ROOT.glob("packages/*/src/**/*.py")):
        if "edl_testing" in module.parts or not LOCK.search(module.read_text()):
            continue
        package, _, inside = str(module.relative_to(ROOT)).split("/src/")[1].partition("/")
        names = f"`{package}/{inside}`", f"`{inside}`"
        assert any(name in page for name in names), f"{module}: its lock is not on the page"
        found += 1
    assert found > 50


def test_a_new_zoo_trains_as_its_own_words_say(edl: Edl, tmp_path: Path) -> None:
    place: Path = tmp_path / "my-zoo"
    made = edl("zoo", "init", str(place))
    (command,) = re.findall(r"edl (train .*)", made.out + made.err)
    result = edl(*shlex.split(command), "-o", "json", cwd=tmp_path).json
    assert result["state"] == "SUCCEEDED"
    # 0.64 of the labels are the same. Of five seeds, the worst had 0.94.
    assert result["metrics"]["accuracy"] > 0.8
