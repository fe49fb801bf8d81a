"""A container engine for tests: Docker's HTTP interface, with a process for each container.

It has what ``container_engine`` and ``job_container`` of ``edl.adapters.local`` call. A
container that would run ``edl_master`` runs the given command instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

IMAGE = "registry.example.com/me/zoo@sha256:" + "a" * 64

_MASTER = ["python3", "-P", "-m", "edl_master"]


_WITHIN = "EDL_FAKE_CONTAINER"
"""A variable of all processes within a container: its name."""


@dataclass
class _FakeContainer:
    name: str
    config: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    removed: threading.Event = field(default_factory=threading.Event)
    exit_code: int = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class FakeEngine:
    """An engine on a free port of the loopback interface. Also a context manager."""

    def __init__(self, master: Sequence[str]) -> None:
        self._master = list(master)
        self._containers: dict[str, _FakeContainer] = {}
        engine = self

        class Handler(_Handler):
            fake = engine

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"tcp://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeEngine:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._containers):
            self.remove(name)
        self._server.shutdown()
        self._server.server_close()

    def containers(self) -> list[_FakeContainer]:
        return list(self._containers.values())

    def create(self, name: str, config: dict[str, Any]) -> None:
        self._containers[name] = _FakeContainer(name, config)

    def find(self, name: str) -> _FakeContainer | None:
        return self._containers.get(name)

    def start(self, name: str) -> None:
        container = self._containers[name]
        command = [*container.config["Entrypoint"], *container.config["Cmd"]]
        at = next(i for i in range(len(command)) if command[i : i + 4] == _MASTER)
        command[at : at + 4] = self._master
        # What the script does before looks for edl_master, which this machine's Python may lack.
        command[2] = command[2][command[2].index("trap ") :]
        variables = dict(each.split("=", 1) for each in container.config["Env"])
        variables[_WITHIN] = name
        container.process = subprocess.Popen(
            command, env={**os.environ, **variables}, start_new_session=True
        )
        threading.Thread(target=self._reap, args=(container,), daemon=True).start()

    def _reap(self, container: _FakeContainer) -> None:
        """Remove a container at its end, as ``auto_remove`` asks an engine to."""
        assert container.process is not None
        code = container.process.wait()
        _end_processes(container.name)
        container.exit_code = code if code >= 0 else 128 - code
        self._containers.pop(container.name, None)
        container.removed.set()

    def kill(self, name: str, number: int) -> None:
        container = self._containers[name]
        if container.process is not None and container.is_running:
            _signal(container.process, number)

    def remove(self, name: str) -> None:
        container = self._containers.get(name)
        if container is None:
            return  # it has just ended
        if container.process is None:
            self._containers.pop(name, None)
            container.removed.set()
            return
        _signal(container.process, signal.SIGKILL)
        container.removed.wait(200)


def _end_processes(container: str) -> None:
    """End what runs within a container: nothing outlives its first process."""
    mark = f"{_WITHIN}={container}".encode()
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in place.read_bytes().split(b"\0"):
                os.kill(int(place.parent.name), signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, number)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeEngine

    def log_message(self, format: str, *_: object) -> None:
        """Requests are not logged."""

    def do_GET(self) -> None:
        path, query = self._path()
        match path:
            case ["version"]:
                self._answer(200, {"ApiVersion": "1.43", "MinAPIVersion": "1.24"})
            case ["_ping"]:
                self._answer(200, "OK")
            case ["images", *_]:
                self._answer(200, {"Id": "sha256:1"})
            case ["containers", "json"]:
                wanted = dict(
                    each.split("=", 1) for each in json.loads(query["filters"]).get("label", [])
                )
                found = [
                    {"Names": [f"/{each.name}"]}
                    for each in self.fake.containers()
                    if wanted.items() <= each.config["Labels"].items()
                ]
                self._answer(200, found)
            case ["containers", name, "json"]:
                self._with(name, lambda it: {"State": {"Running": it.is_running}})
            case _:
                self._answer(404, {"message": self.path})

    def do_POST(self) -> None:
        path, query = self._path()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match path:
            case ["containers", "create"]:
                self.fake.create(query["name"], json.loads(body))
                self._answer(201, {"Id": query["name"], "Warnings": []})
            case ["containers", name, "start"]:
                self._with(name, lambda it: self.fake.start(it.name))
            case ["containers", name, "kill"]:
                self._with(name, lambda it: self.fake.kill(it.name, int(query["signal"])))
            case ["containers", name, "wait"]:
                self._with(name, lambda it: it.removed.wait() and {"StatusCode": it.exit_code})
            case _:
                self._answer(404, {"message": self.path})

    def do_DELETE(self) -> None:
        path, _ = self._path()
        self._with(path[1], lambda it: self.fake.remove(it.name))

    def _path(self) -> tuple[list[str], dict[str, str]]:
        parts = urlsplit(self.path)
        names = [name for name in parts.path.split("/") if name]
        if names and names[0].startswith("v1."):
            names = names[1:]
        return names, {name: values[0] for name, values in parse_qs(parts.query).items()}

    def _with(self, name: str, call: Callable[[_FakeContainer], Any]) -> None:
        container = self.fake.find(name)
        if container is None:
            self._answer(404, {"message": f"No such container: {name}"})
            return
        self._answer(200, call(container) or {})

    def _answer(self, code: int, value: Any) -> None:
        content = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
