"""Errors of a copied model zoo name the files that were submitted."""

from pathlib import Path

import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.job import ModelReference
from edl_worker.model_file.submitted_files import name_submitted_files


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    (tmp_path / "home" / "zoo").mkdir(parents=True)
    return tmp_path / "home" / "zoo"


def report(what: str, zoo: Path, copies: Path) -> EdlError:
    copy = f"{copies}{zoo}"
    error = EdlError(
        ErrorCode.USER_CODE,
        what.format(zoo=copy),
        where=f"{copy}/m.py:3, model",
        remedy="Fix it.",
        detail=f'  File "{copy}/m.py", line 3, in model',
    )
    return name_submitted_files(error, ModelReference(copy, "m", copies=str(copies)))


def test_paths_are_those_of_the_submitter(zoo: Path, tmp_path: Path) -> None:
    found = report("model() raised ValueError: {zoo}/m.py", zoo, tmp_path / "copies")
    assert found.what == f"model() raised ValueError: {zoo}/m.py"
    assert found.where == f"{zoo}/m.py:3, model"
    assert found.detail == f'  File "{zoo}/m.py", line 3, in model'
    assert found.remedy == "Fix it."


def test_a_file_that_the_copy_lacks_is_explained(zoo: Path, tmp_path: Path) -> None:
    (zoo / "big.csv").touch()
    found = report("no such file: '{zoo}/big.csv'", zoo, tmp_path / "copies")
    assert f"a line !big.csv in {zoo}/.edlignore adds it" in found.remedy
    (zoo.parent / "words.txt").touch()
    found = report("no such file: '{zoo}/../words.txt'", zoo, tmp_path / "copies")
    assert "outside of it" in found.remedy


def test_a_zoo_that_is_no_copy_is_left_alone() -> None:
    error = EdlError(ErrorCode.USER_CODE, "/zoo/m.py")
    assert name_submitted_files(error, ModelReference("/zoo", "m")) is error
