"""What an experiment tracker answers is a text of others, and a token goes to its own host only."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.core.tracking import KerasModel
from edl.ports.experiment_tracker import TrackerUnavailable
from edl_mlflow import tracker as mlflow_tracker

TOKEN = "secret-of-the-user"


class Hostile(ThreadingHTTPServer):
    """Answers every call with what a test wants, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.status, self.body, self.location = 200, b"{}", ""
        self.asked: list[str] = []
        self.tokens: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: Hostile

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.path)
        self.server.tokens.append(self.headers.get("Authorization", ""))
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", f"{self.server.location}{self.path}")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST = _answer

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hostile, Hostile]]:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    both = Hostile(), Hostile()
    threads = [threading.Thread(target=each.serve_forever, args=(0.02,)) for each in both]
    for thread in threads:
        thread.start()
    yield both
    for each, thread in zip(both, threads, strict=True):
        each.shutdown()
        thread.join()
        each.server_close()


def open_run(server: Hostile, experiment: str = "") -> str:
    environ = {"MLFLOW_TRACKING_URI": server.address, "MLFLOW_EXPERIMENT_ID": experiment}
    return mlflow_tracker.from_environment(environ).open("job", "then", 0.0)


def run_with(identifier: str) -> bytes:
    info = {"run_id": identifier, "run_uuid": identifier, "status": "RUNNING"}
    return json.dumps({"runs": [{"info": info, "data": {}}]}).encode()


@pytest.mark.parametrize(
    "identifier",
    [
        "1\x1b[2J\x1b]0;owned\x07",
        "1\njob succeeded",
        "1/../../../other",
        "x" * 1_000_000,
        "\u202e1",
        "",
    ],
    ids=["escapes", "line feed", "path", "1 MB", "direction", "nothing"],
)
@pytest.mark.parametrize("of", ["experiment", "run"])
def test_an_identifier_is_one(servers: tuple[Hostile, Hostile], of: str, identifier: str) -> None:
    """It becomes a part of the address that the terminal shows, and of later calls."""
    server, _ = servers
    if of == "run":
        server.body = run_with(identifier)
    else:
        found = {"experiment_id": identifier, "name": "Default", "lifecycle_stage": "active"}
        server.body = json.dumps({"experiment": found}).encode()
    with pytest.raises(TrackerUnavailable) as raised:
        open_run(server, "1" if of == "run" else "")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) <= 200


@pytest.mark.parametrize("status", [400, 403, 500])
def test_an_error_of_a_server_is_shown_in_short(
    servers: tuple[Hostile, Hostile], status: int
) -> None:
    server, _ = servers
    server.status = status
    text = "no\x1b[2J\nedl: all is well\n" + "x" * 1_000_000
    server.body = json.dumps({"error_code": "INTERNAL_ERROR", "message": text}).encode()
    with pytest.raises(TrackerUnavailable) as raised:
        open_run(server)
    assert len(str(raised.value)) <= 200
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_no_token_to_another_server(
    servers: tuple[Hostile, Hostile], status: int
) -> None:
    server, other = servers
    server.status, server.location = status, other.address
    other.body = run_with("r1")
    open_run(server, "1")
    assert any(TOKEN in token for token in server.tokens)
    assert other.asked
    assert not any(TOKEN in token for token in other.tokens)


def test_no_requirement_hides_in_a_version_of_a_model(tmp_path: Path) -> None:
    """The author of a trained model sets its versions, which MLflow installs."""
    file = tmp_path / "model.keras"
    file.write_bytes(b"keras")
    evil = "3.0\n--extra-index-url https://evil.example.com"
    (tmp_path / "layout").mkdir()
    model = KerasModel(file, 1, {"keras": evil, "tensorflow": "2.21.0", "python": evil})
    mlflow_tracker.write_layout(tmp_path / "layout", model, "r", "m")
    for written in (tmp_path / "layout").iterdir():
        if written.is_file():
            assert "evil" not in written.read_text()
    described = yaml.safe_load((tmp_path / "layout" / "conda.yaml").read_text())
    assert described["dependencies"][-1]["pip"][-1] == "tensorflow==2.21.0"
