"""What the documents show runs as they show it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from conftest import ROOT, Edl

import digits


def test_the_readme_s_model_file_and_commands_work(edl: Edl, tmp_path: Path) -> None:
    """In the folder that a reader has after ``./dev demo``."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)
    (source,) = (block for language, block in blocks if language == "python")
    assert len(source.strip().splitlines()) <= 24
    (tmp_path / "digits.py").write_text(source)
    digits.make(tmp_path / "build" / "demo" / "data")
    (block,) = (block for _, block in blocks if "edl train" in block)
    activate, *commands = block.replace("\\\n", " ").strip().splitlines()
    assert activate == ". .venv/bin/activate"
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "edl"
        files = [str(path) for path in tmp_path.glob(words[-1])]
        done = edl(*(words[:-1] + files if words[-1].endswith("/*") else words), cwd=tmp_path)
    assert "first record: tf.Example" in done.out
    jobs = [edl.status(name) for name in edl("list", "-o", "name").out.split()]
    assert [job["state"] for job in jobs] == 3 * ["SUCCEEDED"]
    (trained,) = (job for job in jobs if job["type"] == "TRAIN")
    assert trained["metrics"]["accuracy"] > 0.8


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/*/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_modules_that_documents_name_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for named in re.findall(r"`([\w./-]+/[\w-]+\.py)`", page.read_text()):
            if named.startswith("DIR/"):  # a placeholder for the reader's own folder
                continue
            below = ("src/*", "src", "tests")
            places = [named, *(f"packages/*/{folder}/{named}" for folder in below)]
            assert any(list(ROOT.glob(place)) for place in places), f"{page.name}: no {named}"


def test_every_step_of_a_walk_names_modules_of_its_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    walks = re.findall(r"^## (The walk of .*?)(?=^## )", text, re.S | re.M)
    assert len(walks) == 4
    for walk in walks:
        named = re.findall(r"`([\w/]+\.py)`", walk)
        assert len(named) > 5, walk.splitlines()[0]
        for name in named:
            place = name if name.startswith("edl_") else f"*/{name}"
            assert list(ROOT.glob(f"packages/*/src/{place}")), f"{walk.splitlines()[0]}: no {name}"


def test_the_glossary_is_short_and_names_modules_that_exist() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| term")
    ]
    assert 30 <= len(rows) <= 50
    for term, meaning, module in rows:
        assert meaning, term
        path = module.strip("` |")
        assert list(ROOT.glob(f"packages/*/src/{path}")), f"{term}: there is no {path}"


def test_a_new_zoo_trains_as_its_own_words_say(edl: Edl, tmp_path: Path) -> None:
    place: Path = tmp_path / "my-zoo"
    made = edl("zoo", "init", str(place))
    (command,) = re.findall(r"edl (train .*)", made.out + made.err)
    result = edl(*shlex.split(command), "-o", "json", cwd=tmp_path).json
    assert result["state"] == "SUCCEEDED"
    assert result["metrics"]["accuracy"] > 0.7
