"""A real MLflow server on loopback, in an environment of its own.

The whole of MLflow does not go together with edl's other packages; the client of it does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from tests import dev_cache
from tests.ports import free_port

_UV = Path(sys.executable).parent / "uv"


def install() -> Path:
    """The environment with the server, of the client's version; made once per machine."""
    version = metadata.version("mlflow-skinny")
    place = dev_cache.folder() / f"mlflow-{version}"
    python, complete = place / "bin" / "python", place / "complete"
    with dev_cache.lock("mlflow"):
        if not complete.exists():
            environment = {
                "UV_CACHE_DIR": str(dev_cache.folder() / "packages"),
                "UV_SYSTEM_CERTS": "1",
                **os.environ,
            }
            for command in (
                ("venv", "--clear", "--python", sys.executable, str(place)),
                ("pip", "install", "--python", str(python), f"mlflow=={version}"),
            ):
                subprocess.run([str(_UV), "--quiet", *command], check=True, env=environment)
            complete.touch()
    return place


def site_packages(environment: Path) -> Path:
    """Where an environment has its packages."""
    return next((environment / "lib").glob("python3*/site-packages"))


@contextmanager
def serving(environment: Path, place: Path) -> Iterator[str]:
    """A server, within a context; gives its URL.

    Args:
        place: folder for its database and artifacts.
    """
    port = free_port()
    with (place / "server.log").open("w") as log:
        server = subprocess.Popen(
            [
                *(str(environment / "bin" / "python"), "-m", "mlflow", "server"),
                *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
                *("--backend-store-uri", f"sqlite:///{place}/runs.db"),
                *("--artifacts-destination", str(place / "artifacts")),
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={
                **os.environ,
                "MLFLOW_DISABLE_TELEMETRY": "true",
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            },
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(server, f"{url}/health", place / "server.log")
        yield url
    finally:
        os.killpg(server.pid, 15)
        server.wait(60)


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + 300
    while True:
        try:
            urllib.request.urlopen(url, timeout=200).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"MLflow does not serve:\n{log.read_text()}") from None
        time.sleep(0.2)
