"""The one form of log lines."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging
from edl_proto import logs

logs.set_up()
log = logging.getLogger("some.module")
log.debug("seen by some")
log.info("seen by most")
"""


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        ("", ["I seen by most"]),
        ("debug", ["D seen by some", "I seen by most"]),
        ("WARNING", []),
        ("loud", ["I seen by most"]),
    ],
)
def test_the_level_comes_from_the_environment(level: str, lines: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "EDL_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split(maxsplit=2)[2] for line in done.stderr.splitlines()]
    assert found == [line.replace(" ", " some.module: ", 1) for line in lines]
