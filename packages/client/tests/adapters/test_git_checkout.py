"""What of a repository on this machine is refused; tests of the product fetch real ones."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from edl.adapters import git_checkout
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model import git_source


def test_a_link_that_leads_out_of_a_repository_is_refused(tmp_path: Path) -> None:
    zoo = git_source.parse("https://host.example.com/zoo.git")
    assert zoo is not None
    (tmp_path / "secret").write_text("x")
    checkout = tmp_path / "checkout"
    (checkout / "zoo").mkdir(parents=True)
    (checkout / "zoo" / "same").symlink_to("../zoo")
    git_checkout._check_links(zoo, checkout)
    for target in ("../../secret", str(tmp_path / "secret"), "/nowhere"):
        (checkout / "zoo" / "w.txt").symlink_to(target)
        with pytest.raises(EdlError) as refused:
            git_checkout._check_links(zoo, checkout)
        assert refused.value.code == ErrorCode.FORBIDDEN
        assert "zoo/w.txt" in refused.value.where
        (checkout / "zoo" / "w.txt").unlink()


def test_what_a_killed_git_has_left_blocks_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, place = tmp_path / "zoo", tmp_path / "place"
    place.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "m.py").write_text("x = 1\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "m"], check=True)
    parsed = git_source.parse("https://host.example.com/zoo.git")
    assert parsed is not None
    run = git_checkout._run

    def run_here(zoo: git_source.GitSource, command: list[str], *rest: dict[str, str]) -> str:
        here = [f"file://{repository}" if word == str(zoo.url) else word for word in command]
        return run(zoo, [word.replace("https.allow", "file.allow") for word in here], *rest)

    monkeypatch.setattr(git_checkout, "_run", run_here)
    first = git_checkout._checkout(parsed, place)
    for name in ("shallow.lock", "index.new.lock", "config.lock"):
        (place / "git" / name).touch()
    (repository / "m.py").write_text("x = 2\n")
    subprocess.run([*git, "commit", "-qam", "m"], check=True)
    second = git_checkout._checkout(replace(parsed), place)
    assert first != second
    assert (second / "m.py").read_text() == "x = 2\n"
