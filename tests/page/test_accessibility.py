"""What axe-core finds in the page of a job: nothing, in light and in dark, whatever the job is."""

from __future__ import annotations

import pytest

from page import jobs
from page.axe import findings
from page.conftest import Serve, Visit


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("job", ["training", "failed", "evaluation"])
def test_axe_finds_nothing(serve: Serve, visit: Visit, job: str, dark: bool) -> None:
    tab = visit(serve(*jobs.SCENARIOS[job](74.0)), dark=dark)
    tab.wait_for("document.querySelectorAll('#events > li').length > 0")
    tab.wait_for("!document.getElementById('timeline').hidden")
    assert findings(tab) == []
