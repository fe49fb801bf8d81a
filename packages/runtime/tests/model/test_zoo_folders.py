"""A name of a folder without ``__init__.py`` is that of one of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl_runtime.model import zoo_files
from edl_runtime.model.zoo_folders import places_of


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    folder = tmp_path / "fintech"
    folder.mkdir()
    (folder / "models.py").write_text("class Credit: pass\nwide = deep = None\nfast: int = 1\n")
    (folder / "inputs.py").write_text("from .models import Credit\ndef process(dataset): ...\n")
    (folder / "fraud.py").write_text("class Fraud: pass\n")
    (folder / "broken.py").write_text("class Credit(:\n")
    return tmp_path


@pytest.mark.parametrize("name", ["Credit", "wide", "deep", "fast"])
def test_a_name_is_found_where_it_is_defined_not_where_it_is_imported(zoo: Path, name: str) -> None:
    assert places_of(zoo, f"fintech.{name}") == [f"fintech.models.{name}"]


def test_a_name_of_several_files_has_several_places(zoo: Path) -> None:
    (zoo / "fintech" / "later.py").write_text("def process(dataset): ...\n")
    assert places_of(zoo, "fintech.process") == ["fintech.inputs.process", "fintech.later.process"]


@pytest.mark.parametrize("name", ["Credit", "fintech", "fintech.models", "fintech.models.Credit"])
def test_other_names_are_what_they_say(zoo: Path, name: str) -> None:
    assert places_of(zoo, name) == []


@pytest.mark.parametrize("file", ["fintech/__init__.py", "fintech.py", "fintech/Credit.py"])
def test_a_module_of_that_name_comes_first(zoo: Path, file: str) -> None:
    (zoo / file).touch()
    assert places_of(zoo, "fintech.Credit") == []


def test_only_the_file_of_the_name_and_what_it_imports_belong_to_the_model(zoo: Path) -> None:
    assert zoo_files.select(zoo, ["fintech.Fraud"]).paths == ("fintech/fraud.py",)
    both = ("fintech/inputs.py", "fintech/models.py")
    assert zoo_files.select(zoo, ["fintech.process"]).paths == both
