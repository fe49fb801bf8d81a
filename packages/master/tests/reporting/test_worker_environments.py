"""What the status says of the versions that workers run with."""

from __future__ import annotations

from edl_master.reporting.worker_environments import WorkerEnvironments


def test_a_version_of_all_workers_stands_alone() -> None:
    environments = WorkerEnvironments()
    assert environments.summary() == {}
    environments.add(0, {"python": "3.12.3", "keras": "3.15.1"})
    environments.add(1, {"python": "3.12.3", "keras": "3.15.1"})
    assert environments.summary() == {"python": "3.12.3", "keras": "3.15.1"}


def test_versions_that_differ_name_their_workers() -> None:
    environments = WorkerEnvironments()
    for worker in reversed(range(12)):
        environments.add(worker, {"keras": "3.15.1"})
    environments.add(3, {"keras": "3.14.0", "tensorflow": "2.21.0"})
    assert environments.summary() == {
        "keras": "3.15.1 (workers 0, 1, 2, 4, 5, 6, 7, 8 and 3 more), 3.14.0 (worker 3)",
        "tensorflow": "2.21.0 (worker 3)",
    }


def test_the_next_instance_of_a_worker_counts() -> None:
    environments = WorkerEnvironments()
    environments.add(0, {"keras": "3.14.0", "numpy": "2.3.0"})
    environments.add(0, {"keras": "3.15.1"})
    assert environments.summary() == {"keras": "3.15.1"}


def test_workers_cannot_fill_the_status() -> None:
    environments = WorkerEnvironments()
    environments.add(0, {"secret": "x", "keras": "3.15.1\n\x1b[2J" + "x" * 5000})
    (text,) = environments.summary().values()
    assert text.startswith("3.15.1 \\x1b[2Jxxx")
    assert len(text) == 100
