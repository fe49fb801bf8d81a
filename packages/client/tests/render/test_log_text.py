"""Lines of logs as objects."""

from __future__ import annotations

import json

from edl.core.job_log import LogReader
from edl.render.log_text import log_line_object
from edl_runtime.monitoring.log_lines import LogEntry, as_json

CLAIMED: dict[str, str | int] = {
    "job": "another",
    "role": "master",
    "worker": 0,
    "task": "training/1/2",
}


def test_whose_line_it_is_follows_from_its_log_and_not_from_what_was_printed() -> None:
    """A model file can print a line that says of itself that it is the master's."""
    line = LogReader("worker 1").read(as_json(LogEntry(1.0, "INFO", "a", "m", CLAIMED)))
    found = log_line_object(line, "mine")
    assert (found["job"], found["role"], found["worker"]) == ("mine", "worker", 1)
    assert found["task"] == "training/1/2"


def test_the_master_says_which_worker_its_line_is_about() -> None:
    line = LogReader("master").read(as_json(LogEntry(1.0, "INFO", "a", "m", CLAIMED)))
    assert json.loads(json.dumps(log_line_object(line, "mine")))["worker"] == 0
