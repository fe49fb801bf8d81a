"""A git server over https, with a repository of a model zoo and two tagged commits."""

from __future__ import annotations

import base64
import contextlib
import http.server
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import certificates


@dataclass
class Remote:
    """A repository behind https."""

    port: int
    ca: Path
    commits: list[str]
    served: Path
    asked: list[str] = field(default_factory=list)

    def url(self, name: str = "zoo") -> str:
        return f"https://127.0.0.1:{self.port}/{name}.git"


def git(folder: Path, *arguments: str) -> str:
    """Run git without settings of a user."""
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
        timeout=300,
    )
    return done.stdout.strip()


@contextlib.contextmanager
def serving(
    folder: Path, password: str = "", files: Mapping[str, str] | None = None
) -> Iterator[Remote]:
    """Serve ``zoo.git`` (tags v1 and v2, the zoo in its folder ``zoo``) and ``big.git``.

    Args:
        password: of the user ``me``; empty: none is asked for.
        files: of the zoo; ``{number}`` in them is the commit's.
    """
    work = folder / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    commits = []
    for number in (1, 2):
        (work / "zoo").mkdir(exist_ok=True)
        for name, text in (files or {"m.py": "x = {number}\n"}).items():
            path = work / "zoo" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{number}", str(number)))
        (work / "zoo" / ".gitattributes").write_text("m.py export-ignore\n")
        git(work, "add", "-A")
        git(work, "commit", "-q", "-m", f"commit {number}")
        commits.append(git(work, "rev-parse", "HEAD"))
        git(work, "tag", f"v{number}")
    served = folder / "served"
    served.mkdir()
    git(folder, "clone", "-q", "--bare", str(work), str(served / "zoo.git"))
    git(served / "zoo.git", "config", "uploadpack.allowReachableSHA1InWant", "true")
    (work / "big.bin").write_bytes(os.urandom(3 << 20))
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "big")
    git(folder, "clone", "-q", "--bare", str(work), str(served / "big.git"))

    ca = certificates.make_ca(folder / "ca")
    mine = certificates.make_certificate(ca, folder, "server")
    found = Remote(0, ca.certificate, commits, served)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(served, found, password))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mine.certificate, mine.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def _handler(
    served: Path, remote: Remote, password: str
) -> type[http.server.BaseHTTPRequestHandler]:
    right = base64.b64encode(f"me:{password}".encode()).decode()

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
            if password and self.headers.get("Authorization") != f"Basic {right}":
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
