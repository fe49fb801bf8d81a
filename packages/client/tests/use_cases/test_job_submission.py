"""What is said of a job that has been started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edl.use_cases.job_submission import StartedJob, announcement

LINK = "http://127.0.0.1:1/?token=x"


@pytest.mark.parametrize(
    ("attached", "link", "job", "lines"),
    [
        (False, LINK, {}, [f"digits started, page: {LINK}"]),
        (True, LINK, {}, [f"digits runs already; watching it, page: {LINK}"]),
        (True, "", {"detach": True}, ["digits runs already, page: edl dashboard digits"]),
        (False, "", {"tracker": "mlflow"}, ["digits started, page: edl dashboard digits"]),
        (
            *(False, LINK, {"tracker": "mlflow", "detach": True}),
            [f"digits started, page: {LINK}", "edl track digits  # sends it to mlflow"],
        ),
    ],
)
def test_the_announcement(attached: bool, link: str, job: dict[str, Any], lines: list[str]) -> None:
    found: Any = SimpleNamespace(**{"detach": False, "tracker": "none", **job})
    said = announcement(StartedJob("digits", "", link, attached), found)
    assert said.splitlines() == lines
