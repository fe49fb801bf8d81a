"""A file outside the zoo that the code reads at its import is named by the submission itself."""

from __future__ import annotations

import pytest
from conftest import Edl


def test_a_file_outside_the_zoo_is_named_before_the_job_starts(tidy: Edl) -> None:
    outside = tidy.place / "cities.csv"
    outside.write_text("city\n")
    (tidy.place / "zoo" / "words.txt").write_text("a\n")
    (tidy.place / "zoo" / "words.py").write_text(
        "from pathlib import Path\n"
        "WORDS = Path(__file__).with_name('words.txt').read_text()\n"
        "CITIES = Path(__file__).parent.parent.joinpath('cities.csv').read_text()\n"
    )
    file = tidy.place / "zoo" / "mine.py"
    file.write_text(f"import words\nopen('/etc/passwd')\n{file.read_text()}")
    done = tidy(*tidy.job())
    before = done.err.partition(" started, page: ")[0].splitlines()
    (warning,) = [line for line in before if line.startswith("warning: ")]
    assert warning.startswith(f"warning: words.py:3 reads {outside}, which is outside the model")
    assert "Put it into the model zoo." in warning


def test_a_file_of_the_zoo_that_is_read_by_a_path_relative_to_the_working_folder(
    tidy: Edl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tidy.place)
    words = tidy.place / "zoo" / "words.txt"
    words.write_text("a\n")
    file = tidy.place / "zoo" / "mine.py"
    file.write_text(f"open('zoo/words.txt')\n{file.read_text()}")
    done = tidy(*tidy.job())
    before = done.err.partition(" started, page: ")[0].splitlines()
    (warning,) = [line for line in before if line.startswith("warning: ")]
    assert warning.startswith(f"warning: mine.py:1 reads {words} where it is, and not the job's")
    assert "Path(__file__).parent" in warning
