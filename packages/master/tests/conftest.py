"""Lets tests share what is in ``conformance/`` and ``fakes/``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from edl_testing import fork_server

# A machine that is busy, or a loop that is compiled, makes an example slow, not wrong.
settings.register_profile("usual", deadline=None)
settings.load_profile("usual")

pytest.register_assert_rewrite("conformance.platform_suite", "conformance.checkpoint_suite")
pytest.register_assert_rewrite(
    "edl_testing.master_conformance", "edl_testing.parameter_server_conformance"
)


@pytest.fixture(autouse=True)
def new_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test starts masters that follow none: a master inside of a test may have left its count."""
    monkeypatch.delenv("EDL_MASTER_RESTARTS", raising=False)


@pytest.fixture(scope="session")
def forking_python() -> Iterator[str]:
    """An interpreter that runs masters as forks of a process that has imported theirs."""
    with fork_server.forking_python(
        [fork_server.MASTER], fork_server.MASTER_IMPORTS
    ) as interpreter:
        yield interpreter
