"""``edl delete`` of several jobs, named or chosen."""

from __future__ import annotations

import json

from conftest import Edl


def set_end(edl: Edl, name: str, finished_at: str) -> None:
    """Change when a job that is over ended."""
    path = edl.job_dir(name) / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished_at": finished_at}))


def names(edl: Edl) -> set[str]:
    return set(edl("list", "-o", "name").out.split())


def succeed(edl: Edl, name: str) -> None:
    edl.part = "quick"
    edl(*edl.job("--name", name, "--output", str(edl.place / name)))


def fail(edl: Edl, name: str) -> None:
    edl.part = "fail"
    assert edl.run(*edl.job("--name", name, "--output", str(edl.place / name))).code == 4


def test_one_error_stops_no_other_deletion(tidy: Edl) -> None:
    succeed(tidy, "first")
    succeed(tidy, "last")
    tidy.begin("busy", "--output", str(tidy.place / "busy"))
    done = tidy.run("delete", "first", "nowhere", "busy", "last", "--yes")
    assert done.code == 6, str(done)  # that of the first error
    assert done.out == "first deleted\nlast deleted\n"
    assert "there is no job named nowhere" in done.err
    assert "edl delete busy --stop" in done.err
    assert names(tidy) == {"busy"}
    done = tidy.run("delete", "busy", "nowhere", "--stop", "--yes", "-o", "json")
    assert done.code == 6
    deleted, refused = json.loads(done.out)
    assert deleted == {"job": "busy", "deleted": True}
    assert (refused["deleted"], refused["error"]["code"]) == (False, "JOB_NOT_FOUND")
    assert names(tidy) == set()


def test_failed_and_old_jobs_are_chosen(tidy: Edl) -> None:
    for name in ("good-old", "good-new"):
        succeed(tidy, name)
    for name in ("bad-old", "bad-new"):
        fail(tidy, name)
    for name in ("good-old", "bad-old"):
        set_end(tidy, name, "2026-01-01T00:00:00Z")
    tidy.begin("busy", "--output", str(tidy.place / "busy"))
    done = tidy.run("delete", "--failed", "--older-than", "7d")
    assert done.code == 2
    assert "the deletion of bad-old needs confirmation" in done.err
    assert tidy("delete", "--failed", "--older-than", "7d", "--yes").out == "bad-old deleted\n"
    assert tidy("delete", "--older-than", "7d", "--yes").out == "good-old deleted\n"
    assert tidy("delete", "--failed", "--yes", "-o", "json").json == [
        {"job": "bad-new", "deleted": True}
    ]
    assert names(tidy) == {"good-new", "busy"}
    nothing = tidy("delete", "--failed")
    assert (nothing.out, nothing.err) == ("", "no job matches\n")
    tidy("stop", "busy")


def test_names_and_choices_exclude_each_other(edl: Edl) -> None:
    for wrong in (["delete"], ["delete", "one", "--failed"]):
        done = edl.run(*wrong, "--yes")
        assert done.code == 2, str(done)
        assert "takes names of jobs, or --failed and --older-than" in done.err
    done = edl.run("delete", "--older-than", "soon")
    assert done.code == 2
    assert "--older-than 7d" in done.err
