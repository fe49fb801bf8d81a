"""What the documents show runs as they show it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from conftest import ROOT, Edl

import digits


def test_the_readme_s_model_file_trains(edl: Edl, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (source,) = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert len(source.strip().splitlines()) <= 24
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "digits.py").write_text(source)
    digits.make(tmp_path / "data")
    result = edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "digits", "-o", "json"),
        *("--data", f"{tmp_path}/data/train/*.recordio", "--num-epochs", "2"),
        *("--validation-data", f"{tmp_path}/data/test/*.recordio"),
        *("--output", str(tmp_path / "model")),
    ).json
    assert result["metrics"]["accuracy"] > 0.3


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
