"""A parameter server is lost while the last checkpoint is written: its part is not waited for."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from edl_master.app.master import MasterApp
from edl_master.core.effects import JobPhase
from edl_master.core.failure import Failure
from edl_master.core.outcome import JobEnd
from edl_master.server_group.group import ParameterServerGroup
from edl_proto.errors import EdlError
from edl_proto.v1 import job_pb2

LONG_S = 600.0


class Ending(MasterApp):
    """A master whose job has ended, and whose only parameter server will never write its part."""

    def __init__(self) -> None:
        self.group = ParameterServerGroup(job_pb2.JobSpec(name="j"), 1, "inc", {}, "")
        self.rolled_back = ""

        def close(timeout_s: float) -> None:
            with contextlib.suppress(EdlError):
                self.group.wait_written("label", LONG_S)

        lost = "Parameter server 0 ended by signal 9"
        servers = SimpleNamespace(group=self.group, check=lambda: lost)
        effects = SimpleNamespace(close=close)
        self._services = SimpleNamespace(effects=effects, servers=servers)

    def _roll_back(self, lost: str) -> bool:
        self.rolled_back = lost
        return True


@pytest.mark.parametrize("phase", [JobPhase.CANCELLED, JobPhase.SUCCEEDED])
def test_the_master_rolls_back_and_ends_the_job_again(phase: JobPhase) -> None:
    app = Ending()
    assert not app._complete_files(JobEnd(phase, None))
    assert "signal 9" in app.rolled_back
    app.group.close()


def test_a_job_that_fails_anyway_ends_without_that_part() -> None:
    app = Ending()
    assert app._complete_files(JobEnd(JobPhase.FAILED, Failure("DISK_FULL", "no space")))
    assert not app.rolled_back
