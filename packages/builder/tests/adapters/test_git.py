"""Git, from a real server over https that asks for a password."""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from git_server import Remote, git, serving

from edl_builder.adapters import git as git_adapter
from edl_builder.adapters.cancellation import CancellationFlag
from edl_builder.adapters.git import Git, GitCredential
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.source_policy import SourcePolicy, allow

LIMITS = ArchiveLimits(1 << 20, 1 << 20, 100)
SECRET = "hunter22-token"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with serving(tmp_path_factory.mktemp("git"), SECRET) as found:
        yield found


@dataclass
class Fetching:
    """Fetches from the server, and keeps what was said."""

    remote: Remote
    folder: Path
    limits: ArchiveLimits = LIMITS
    lines: list[str] = field(default_factory=list)
    private: bool = True
    longest_s: float = 60.0
    cancellation: CancellationFlag = field(default_factory=CancellationFlag)

    def __call__(
        self, ref: str = "", folder: str = "", credential: str = "mine", name: str = "zoo"
    ) -> Path:
        here = f"127.0.0.1:{self.remote.port}"
        policy = SourcePolicy(private_hosts=(here,))
        source = allow(self.remote.url(name), ref, folder, credential, policy)
        credentials = {
            "mine": GitCredential("me", SECRET, (here,)),
            "wrong": GitCredential("me", "wrong-password", (here,)),
            "elsewhere": GitCredential("me", SECRET, ("github.com",)),
        }
        adapter = Git(
            policy if self.private else SourcePolicy(),
            credentials,
            self.limits,
            str(self.remote.ca),
            self.longest_s,
        )
        return adapter.fetch(source, self.folder, self.lines.append, self.cancellation)


@pytest.fixture
def fetch(remote: Remote, tmp_path: Path) -> Fetching:
    return Fetching(remote, tmp_path)


def _files(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {m.name: f.read() for m in tar if (f := tar.extractfile(m)) is not None}


def test_the_default_branch_a_tag_and_a_commit(fetch: Fetching, remote: Remote) -> None:
    for ref, text in (("", b"x = 2\n"), ("v1", b"x = 1\n"), (remote.commits[0], b"x = 1\n")):
        archive = fetch(ref)
        # Also what the repository itself would leave out of archives.
        assert _files(archive)["zoo/m.py"] == text
        archive.unlink()
    assert f"commit {remote.commits[1]}" in fetch.lines


def test_a_folder_of_the_repository(fetch: Fetching) -> None:
    assert set(_files(fetch(folder="zoo"))) == {"m.py", ".gitattributes"}


def test_nothing_else_is_left(fetch: Fetching) -> None:
    archive = fetch()
    assert {path.name for path in fetch.folder.iterdir()} == {archive.name, "commit"}


@pytest.mark.parametrize(
    ("ref", "folder", "credential"),
    [("no-such-ref", "", "mine"), ("", "none", "mine"), ("", "", ""), ("", "", "wrong")],
)
def test_gits_own_reason_is_shown_if_nothing_can_be_fetched(
    fetch: Fetching, ref: str, folder: str, credential: str
) -> None:
    with pytest.raises(BuilderError) as refused:
        fetch(ref, folder, credential)
    assert refused.value.failure.reason is Reason.SOURCE
    assert list(fetch.folder.iterdir()) == []


@pytest.mark.parametrize("credential", ["elsewhere", "unknown"])
def test_a_credential_goes_to_its_own_hosts_alone(
    fetch: Fetching, remote: Remote, credential: str
) -> None:
    remote.asked.clear()
    with pytest.raises(BuilderError) as refused:
        fetch(credential=credential)
    assert refused.value.failure.reason is Reason.FORBIDDEN
    assert remote.asked == []


def test_no_secret_is_shown(fetch: Fetching) -> None:
    fetch()
    with pytest.raises(BuilderError) as refused:
        fetch("no-such-ref")
    said = "\n".join([*fetch.lines, str(refused.value.failure)])
    assert SECRET not in said
    assert base64.b64encode(f"me:{SECRET}".encode()).decode() not in said


def test_redirects_are_not_followed(fetch: Fetching, remote: Remote) -> None:
    remote.asked.clear()
    with pytest.raises(BuilderError):
        fetch(name="moved")
    assert all(path.startswith("/moved") for path in remote.asked)


def test_a_large_repository_is_not_kept(fetch: Fetching) -> None:
    with pytest.raises(BuilderError) as refused:
        fetch(name="big")
    assert refused.value.failure.reason is Reason.LIMIT
    assert list(fetch.folder.iterdir()) == []


def _repository(remote: Remote, name: str, trees: Sequence[str]) -> int:
    """Serve a repository whose commit has the last of these trees; its size in bytes.

    In a tree, ``%BLOB%`` is the id of 1 MiB of zeros, and ``%TREE%`` that of the tree before.
    """
    folder = remote.served / f"{name}.git"
    folder.mkdir()
    git(folder, "init", "-q", "--bare", "-b", "main")
    zeros = folder / "zeros"
    zeros.write_bytes(bytes(1 << 20))
    blob, tree = git(folder, "hash-object", "-w", str(zeros)), ""
    zeros.unlink()
    for text in trees:
        listing = text.replace("%BLOB%", blob).replace("%TREE%", tree)
        made = subprocess.run(
            ["git", "-C", str(folder), "mktree"],
            input=listing,
            capture_output=True,
            text=True,
            check=True,
        )
        tree = made.stdout.strip()
    commit = git(folder, "commit-tree", "-m", "x", tree)
    git(folder, "update-ref", "refs/heads/main", commit)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_repository_that_names_one_file_many_times_is_not_written(
    fetch: Fetching, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some kilobytes of repository that would be 4 GB of archive."""
    files = "".join(f"100644 blob %BLOB%\tf{n}\n" for n in range(4096))
    assert _repository(remote, "many", [files]) < 1 << 20
    fetch.limits = ArchiveLimits(1 << 20, 1 << 30, 20_000)
    written: list[str] = []
    monkeypatch.setattr(git_adapter, "copy_bounded", lambda *_: written.append("archive") or "")
    with pytest.raises(BuilderError) as refused:
        fetch(name="many")
    assert refused.value.failure.reason is Reason.LIMIT
    assert written == []
    assert list(fetch.folder.iterdir()) == []


def test_a_forest_of_equal_trees_is_not_walked_to_its_end(fetch: Fetching, remote: Remote) -> None:
    """Ten levels of ten: ten thousand million files in two kilobytes."""
    leaf = "".join(f"100644 blob %BLOB%\tf{n}\n" for n in range(10))
    level = "".join(f"040000 tree %TREE%\td{n}\n" for n in range(10))
    _repository(remote, "forest", [leaf, *[level] * 9])
    with pytest.raises(BuilderError) as refused:
        fetch(name="forest")
    assert refused.value.failure.reason is Reason.LIMIT


class _Endless(io.RawIOBase):
    """Output that never ends."""

    def __init__(self, line: bytes) -> None:
        self._line = line
        self.given = 0

    def read1(self, size: int = -1) -> bytes:
        self.given += len(self._line)
        return self._line


def test_no_more_is_written_than_a_zoo_may_have(tmp_path: Path) -> None:
    output, limits = _Endless(bytes(1 << 16)), ArchiveLimits(1 << 20, 1 << 20, 10)
    with pytest.raises(BuilderError) as refused:
        git_adapter.copy_bounded(output, tmp_path / "a", limits)
    assert refused.value.failure.reason is Reason.LIMIT
    assert (tmp_path / "a").stat().st_size <= (1 << 20) + 10 * 2048


@pytest.mark.parametrize("line", [b"040000 tree abc       -\td\0", b"x" * 1000])
def test_no_more_of_a_listing_is_read_than_a_zoo_may_have(line: bytes) -> None:
    output = _Endless(line)
    with pytest.raises(BuilderError) as refused:
        git_adapter.check_tree(output, LIMITS)
    assert refused.value.failure.reason is Reason.LIMIT
    assert output.given < 1 << 17


def _stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let a program of the shell take the place of git."""
    path = folder / "bin" / "git"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("program", "reason", "what"),
    [
        # More of one file than a repository may have, in less time than sizes are looked at.
        ("head -c 9000000 /dev/zero > $folder/pack", Reason.LIMIT, "the repository is larger"),
        # More memory than it may have.
        ("exec python3 -c 'x = bytearray(4 << 30)'", Reason.SOURCE, "MemoryError"),
        # Messages without end.
        ("yes message | head -c 30000000 >&2; exit 3", Reason.SOURCE, "message"),
    ],
)
def test_limits_hold_while_git_runs(
    fetch: Fetching,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    reason: Reason,
    what: str,
) -> None:
    begin = f"folder={fetch.folder}/git; mkdir -p $folder"
    _stand_in(tmp_path, monkeypatch, f"{begin}; case \"$*\" in *' fetch '*) {program};; esac")
    with pytest.raises(BuilderError, match=what) as refused:
        fetch()
    assert refused.value.failure.reason is reason
    assert not (fetch.folder / "git").exists()
    assert len(fetch.lines) < 30


# What is left of git, and keeps one of its pipes open.
LEFT = {
    "git": "sleep 600",
    "git and a child": "sleep 600 & wait",
    "a child with the output": "sleep 600 2>/dev/null &",
    "a child with the messages": "sleep 600 >/dev/null &",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("left", LEFT)
def test_a_server_that_says_nothing_is_not_waited_for(
    fetch: Fetching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    _stand_in(tmp_path, monkeypatch, LEFT[left])
    fetch.longest_s = 1.0
    with pytest.raises(BuilderError, match="not finish within 1 s") as refused:
        fetch()
    assert refused.value.failure.reason is Reason.SOURCE


@pytest.mark.timeout(300)
def test_nothing_that_git_has_started_outlives_it(
    fetch: Fetching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    _stand_in(tmp_path, monkeypatch, f"sleep 600 >/dev/null 2>&1 & echo $! > {child}; exit 1")
    with pytest.raises(BuilderError):
        fetch()
    while _is_running(int(child.read_text())):
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.timeout(300)
def test_a_cancelled_fetch_ends(
    fetch: Fetching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun = tmp_path / "has_begun"
    os.mkfifo(has_begun)
    _stand_in(tmp_path, monkeypatch, f"echo > {has_begun}; sleep 600 &")

    def cancel() -> None:
        has_begun.read_text()
        fetch.cancellation.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(BuilderError) as refused:
        fetch()
    canceller.join()
    assert refused.value.failure.reason is Reason.CANCELLED


def test_a_private_address_is_never_asked(fetch: Fetching, remote: Remote) -> None:
    remote.asked.clear()
    fetch.private = False
    with pytest.raises(BuilderError) as refused:
        fetch()
    assert refused.value.failure.reason is Reason.UNSAFE
    assert remote.asked == []


def test_git_is_there() -> None:
    assert shutil.which("git")
