"""The log of a process: its level, its form, and whose lines they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging
from edl_runtime.monitoring import logs

logs.set_up()
log = logging.getLogger("some.module")
log.debug("seen by some")
log.info("seen by most")
"""


def run(program: str, **variables: str) -> list[str]:
    """The lines of a process that says something."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "EDL_LOG_LEVEL": "", "EDL_LOG_FORMAT": "", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()


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
    found = [line.split(maxsplit=1)[1] for line in run(PROGRAM, EDL_LOG_LEVEL=level)]
    assert found == [line.replace(" ", " some.module: ", 1) for line in lines]


WHOSE = """
import logging, threading
from edl_runtime.monitoring import logs

logs.set_up()
log = logging.getLogger("some.module")
logs.identify("worker", 3)
log.info("before it knows its job")
logs.identify(job="digits")
with logs.task_context("training/1/4"):
    log.info("in a task")
    other = threading.Thread(target=log.info, args=("in another thread",))
    other.start()
    other.join()
log.warning("about another", extra={"worker": "5", "task": ""})
"""


def test_each_line_says_whose_it_is() -> None:
    found = [line.split(" ", 1)[1] for line in run(WHOSE)]
    assert found == [
        "I [role=worker worker=3] some.module: before it knows its job",
        "I [job=digits role=worker worker=3 task=training/1/4] some.module: in a task",
        "I [job=digits role=worker worker=3] some.module: in another thread",
        "W [job=digits role=worker worker=5] some.module: about another",
    ]


BROKEN = """
import logging
from edl_runtime.monitoring import logs

logs.set_up()
logs.identify("master", job="digits")
try:
    raise ValueError("two\\nlines")
except ValueError:
    logging.getLogger("some.module").exception("it %s", "failed")
"""


def test_json_is_one_object_a_line_also_for_an_exception() -> None:
    (line,) = run(BROKEN, EDL_LOG_FORMAT="json")
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found.pop("exception").splitlines()[-2:] == ["ValueError: two", "lines"]
    assert found == {
        "level": "ERROR",
        "logger": "some.module",
        "message": "it failed",
        "job": "digits",
        "role": "master",
    }
    assert run(BROKEN)[-1] == "lines", "in text the exception is below"


def test_a_form_that_there_is_not_is_text_with_a_warning() -> None:
    warning, line = run(PROGRAM, EDL_LOG_FORMAT="xml")
    assert "EDL_LOG_FORMAT is 'xml'" in warning
    assert line.endswith("some.module: seen by most")
