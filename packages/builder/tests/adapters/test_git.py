"""Git, from a real server over https that asks for a password."""

from __future__ import annotations

import base64
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from git_server import Remote, serving

from edl_builder.adapters.cancellation import CancellationFlag
from edl_builder.adapters.git import Git, GitCredential
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.names import BuilderError, Reason
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
        git = Git(
            policy if self.private else SourcePolicy(),
            credentials,
            self.limits,
            str(self.remote.ca),
            self.longest_s,
        )
        return git.fetch(source, self.folder, self.lines.append, CancellationFlag())


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
    assert list(fetch.folder.iterdir()) == [archive]


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


def test_a_server_that_says_nothing_is_not_waited_for(
    fetch: Fetching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = tmp_path / "bin" / "git"
    stuck.parent.mkdir()
    stuck.write_text("#!/bin/sh\nsleep 600 &\nwait\n")
    stuck.chmod(0o755)
    monkeypatch.setenv("PATH", str(stuck.parent), prepend=os.pathsep)
    fetch.longest_s = 1.0
    with pytest.raises(BuilderError, match="not done within 1 s") as refused:
        fetch()
    assert refused.value.failure.reason is Reason.SOURCE


def test_a_private_address_is_never_asked(fetch: Fetching, remote: Remote) -> None:
    remote.asked.clear()
    fetch.private = False
    with pytest.raises(BuilderError) as refused:
        fetch()
    assert refused.value.failure.reason is Reason.UNSAFE
    assert remote.asked == []


def test_git_is_there() -> None:
    assert shutil.which("git")
