"""The process that serves the page of a finished job."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from edl.adapters.local.dashboard_viewer import viewer
from edl_proto.errors import EdlError

_TALKATIVE = """
import sys
print('{"dashboard_url": "http://127.0.0.1:1/"}', flush=True)
sys.stderr.write("a line of its log\\n" * 100_000)
"""


def stand_in(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_MASTER_COMMAND", shlex.join([sys.executable, "-c", program]))


def test_its_log_never_blocks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(_TALKATIVE, monkeypatch)
    with viewer(tmp_path, 0) as (url, process):
        assert url == "http://127.0.0.1:1/"
        assert process.wait(200) == 0


def test_one_that_does_not_come_up_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("import sys; sys.exit('no such module')", monkeypatch)
    with pytest.raises(EdlError, match="cannot be served") as caught, viewer(tmp_path, 0):
        pytest.fail("nothing is served")
    assert caught.value.detail == "no such module"
