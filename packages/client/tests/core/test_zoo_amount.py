"""How much of a model zoo a person has to accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.core.problem import Problem
from edl.core.zoo_amount import check_amount
from edl_runtime.model.zoo_files import select


def test_large_files_have_to_be_accepted(tmp_path: Path) -> None:
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(2 << 30)  # takes no room
    (tmp_path / ".edlignore").write_text("!data.bin\n")
    with pytest.raises(Problem, match=r"2\.1 GB") as problem:
        check_amount(select(tmp_path), "zoo", accepted=False)
    assert problem.value.code == "LIMIT_EXCEEDED"
    assert "--yes" in problem.value.remedy
    check_amount(select(tmp_path), "zoo", accepted=True)
