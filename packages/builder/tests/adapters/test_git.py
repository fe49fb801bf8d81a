"""Git, from a real server over https that asks for a password."""

from __future__ import annotations

import base64
import http.server
import os
import shutil
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import certificates
import pytest

from edl_builder.adapters.git import Git, GitCredential
from edl_builder.adapters.stopping import StopSignal
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.names import Reason, Refused
from edl_builder.core.sources import SourcePolicy, check_git

LIMITS = ArchiveLimits(1 << 20, 1 << 20, 100)
SECRET = "hunter22-token"


@dataclass
class Remote:
    """A repository behind https."""

    port: int
    ca: Path
    commits: list[str]
    asked: list[str] = field(default_factory=list)

    def url(self, name: str = "zoo") -> str:
        return f"https://127.0.0.1:{self.port}/{name}.git"


def _git(folder: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            f"GIT_{who}_{what}": f"{who}@x"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("git")
    work = folder / "work"
    work.mkdir()
    _git(work, "init", "-q", "-b", "main")
    commits = []
    for number in (1, 2):
        (work / "zoo").mkdir(exist_ok=True)
        (work / "zoo" / "m.py").write_text(f"x = {number}\n")
        (work / "zoo" / ".gitattributes").write_text("m.py export-ignore\n")
        _git(work, "add", "-A")
        _git(work, "commit", "-q", "-m", f"commit {number}")
        commits.append(_git(work, "rev-parse", "HEAD"))
        _git(work, "tag", f"v{number}")
    served = folder / "served"
    served.mkdir()
    _git(folder, "clone", "-q", "--bare", str(work), str(served / "zoo.git"))
    _git(served / "zoo.git", "config", "uploadpack.allowReachableSHA1InWant", "true")
    (work / "big.bin").write_bytes(os.urandom(3 << 20))
    _git(work, "add", "-A")
    _git(work, "commit", "-q", "-m", "big")
    _git(folder, "clone", "-q", "--bare", str(work), str(served / "big.git"))

    ca = certificates.make_ca(folder / "ca")
    mine = certificates.make_certificate(ca, folder, "server")
    found = Remote(0, ca.certificate, commits)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(served, found))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mine.certificate, mine.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    thread.join(10)
    server.server_close()


def _handler(served: Path, remote: Remote) -> type[http.server.BaseHTTPRequestHandler]:
    right = base64.b64encode(f"me:{SECRET}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        """Git's own CGI program behind a password."""

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def _serve(self, body: bytes) -> None:
            remote.asked.append(self.path)
            if self.path.startswith("/moved"):
                self.send_response(302)
                self.send_header("Location", remote.url() + self.path.partition(".git")[2])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if self.headers.get("Authorization") != f"Basic {right}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            done = subprocess.run(
                ["git", "http-backend"],
                input=body,
                capture_output=True,
                check=False,
                env={
                    "PATH": os.environ["PATH"],
                    "GIT_PROJECT_ROOT": str(served),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "GIT_CONFIG_COUNT": "1",
                    "GIT_CONFIG_KEY_0": "safe.directory",
                    "GIT_CONFIG_VALUE_0": "*",
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "REQUEST_METHOD": self.command,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "CONTENT_LENGTH": str(len(body)),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                },
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


@dataclass
class Fetching:
    """Fetches from the server, and keeps what was said."""

    remote: Remote
    folder: Path
    limits: ArchiveLimits = LIMITS
    lines: list[str] = field(default_factory=list)
    private: bool = True

    def __call__(
        self, ref: str = "", folder: str = "", credential: str = "mine", name: str = "zoo"
    ) -> Path:
        here = f"127.0.0.1:{self.remote.port}"
        policy = SourcePolicy(private_hosts=(here,))
        source = check_git(self.remote.url(name), ref, folder, credential, policy)
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
        )
        return git.fetch(source, self.folder, self.lines.append, StopSignal())


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
def test_what_cannot_be_fetched_is_told_by_git(
    fetch: Fetching, ref: str, folder: str, credential: str
) -> None:
    with pytest.raises(Refused) as refused:
        fetch(ref, folder, credential)
    assert refused.value.failure.reason is Reason.SOURCE
    assert list(fetch.folder.iterdir()) == []


@pytest.mark.parametrize("credential", ["elsewhere", "unknown"])
def test_a_credential_goes_to_its_own_hosts_alone(
    fetch: Fetching, remote: Remote, credential: str
) -> None:
    remote.asked.clear()
    with pytest.raises(Refused) as refused:
        fetch(credential=credential)
    assert refused.value.failure.reason is Reason.FORBIDDEN
    assert remote.asked == []


def test_no_secret_is_said(fetch: Fetching) -> None:
    fetch()
    with pytest.raises(Refused) as refused:
        fetch("no-such-ref")
    said = "\n".join([*fetch.lines, str(refused.value.failure)])
    assert SECRET not in said
    assert base64.b64encode(f"me:{SECRET}".encode()).decode() not in said


def test_redirects_are_not_followed(fetch: Fetching, remote: Remote) -> None:
    remote.asked.clear()
    with pytest.raises(Refused):
        fetch(name="moved")
    assert all(path.startswith("/moved") for path in remote.asked)


def test_a_large_repository_is_not_kept(fetch: Fetching) -> None:
    with pytest.raises(Refused) as refused:
        fetch(name="big")
    assert refused.value.failure.reason is Reason.LIMIT
    assert list(fetch.folder.iterdir()) == []


def test_a_private_address_is_never_asked(fetch: Fetching, remote: Remote) -> None:
    remote.asked.clear()
    fetch.private = False
    with pytest.raises(Refused) as refused:
        fetch()
    assert refused.value.failure.reason is Reason.UNSAFE
    assert remote.asked == []


def test_git_is_there() -> None:
    assert shutil.which("git")
