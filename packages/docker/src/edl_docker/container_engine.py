"""This machine's container engine: what of a job runs there, and which images it has."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.files import read_regular
from edl_runtime.image_names import is_on_this_machine
from edl_runtime.json_texts import parse_object
from edl_runtime.local import job_directory

DEFAULT_ENGINE = "unix:///var/run/docker.sock"

LABEL_JOB = "io.edl.job"
"""Name of the job."""

LABEL_JOB_DIR = "io.edl.job-dir"
"""Directory of the job: two users may have jobs of the same name on one engine."""

_CALL_S = 60.0


def engine_url(named: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the engine of this machine.

    Raises:
        EdlError: USAGE; it is another machine's, where the job's places are not.
    """
    url = named or environ.get("DOCKER_HOST") or DEFAULT_ENGINE
    scheme, _, place = url.partition("://")
    if not (url.startswith("unix:///") or (scheme == "tcp" and is_on_this_machine(place))):
        raise EdlError(
            ErrorCode.USAGE,
            f"{url} is not an engine of this machine",
            where="--engine" if named else "$DOCKER_HOST",
            remedy="Name a socket, such as unix:///var/run/docker.sock: containers mount"
            " folders of the machine that they run on.",
        )
    return url


@dataclass(frozen=True, slots=True)
class Container:
    """A container, as it is found in its engine."""

    engine: str
    name: str

    @property
    def is_alive(self) -> bool:
        """Whether it runs.

        Raises:
            EdlError: ENGINE_UNAVAILABLE.
        """
        state: dict[str, Any] = {}
        with translated_errors(self.engine), _unless_gone():
            state = client(self.engine).inspect_container(self.name)["State"]
        return bool(state.get("Running"))

    def send(self, what: signal.Signals) -> None:
        """Signal it; SIGKILL also removes what is left of it. Nothing happens if it is gone.

        Raises:
            EdlError: ENGINE_UNAVAILABLE.
        """
        with translated_errors(self.engine), _unless_gone():
            if what is signal.SIGKILL:
                client(self.engine).remove_container(self.name, force=True, v=True)
            else:
                client(self.engine).kill(self.name, what.value)


def of_job(path: Path) -> list[Container]:
    """Return the containers of a job that are there, running or not; none if it has no engine.

    Two at most: one that ends and the next one.

    Raises:
        EdlError: ENGINE_UNAVAILABLE.
    """
    record = read(path)
    if record is None:
        return []
    label = f"{LABEL_JOB_DIR}={path.absolute()}"
    with translated_errors(record.engine):
        found = client(record.engine).containers(all=True, filters={"label": label})
        return [Container(record.engine, each["Names"][0].lstrip("/")) for each in found]


def sweep(path: Path) -> None:
    """Remove all containers of a job. Raises: EdlError: ENGINE_UNAVAILABLE."""
    for container in of_job(path):
        container.send(signal.SIGKILL)


def read(path: Path) -> Container | None:
    """Return the last container of a job, from the job's directory; None for local processes."""
    try:
        facts = parse_object(read_regular(path / job_directory.CONTAINER))
        return Container(str(facts["engine"]), str(facts["name"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_engine(url: str) -> None:
    """Raises: EdlError: ENGINE_UNAVAILABLE."""
    with translated_errors(url):
        client(url).ping()


def has_image(url: str, image: str) -> bool:
    """Return whether the engine has an image. Raises: EdlError: ENGINE_UNAVAILABLE."""
    from docker.errors import ImageNotFound

    with translated_errors(url):
        try:
            client(url).inspect_image(image)
        except ImageNotFound:
            return False
        return True


def pull(url: str, image: str, on_line: Callable[[str], None]) -> None:
    """Get an image from its registry, with the credentials of ``docker login``.

    Raises:
        EdlError: ENGINE_UNAVAILABLE or REGISTRY_UNAVAILABLE.
    """
    repository, _, digest = image.partition("@")
    with translated_errors(url):
        from docker.errors import APIError

        try:
            for news in client(url, None).pull(repository, tag=digest, stream=True, decode=True):
                if "error" in news:
                    raise _not_pulled(image, str(news["error"]))
                if not news.get("progressDetail") and news.get("status"):
                    on_line(f"{news.get('id', '')} {news['status']}".strip())
        except APIError as error:
            raise _not_pulled(image, str(error.explanation)) from error


@functools.cache
def client(url: str, timeout_s: float | None = _CALL_S) -> Any:
    """Return the engine's API."""
    import docker  # takes long, and most commands do not need it

    made = docker.APIClient(url, version="auto", timeout=_CALL_S)
    made.timeout = timeout_s
    return made


@contextlib.contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """Translate errors of the engine into EdlErrors within a context."""
    try:
        yield
    except EdlError:
        raise
    except Exception as error:
        from docker.errors import APIError

        if isinstance(error, APIError):
            what = f"the container engine refused the call: {error.explanation or error}"
        else:
            what = f"the container engine does not answer: {type(error).__name__}"
        raise EdlError(
            ErrorCode.ENGINE_UNAVAILABLE,
            what,
            where=url,
            remedy="Check that the engine runs (docker info) and that you may use its socket;"
            " --engine or DOCKER_HOST names another engine.",
        ) from error


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Ignore, within a context, that a container is gone or ending."""
    try:
        yield
    except EdlError:
        raise
    except Exception as error:
        from docker.errors import APIError

        gone = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)  # such as: it is not running
        if not isinstance(error, APIError) or error.status_code not in gone:
            raise


def _not_pulled(image: str, why: str) -> EdlError:
    return EdlError(
        ErrorCode.REGISTRY_UNAVAILABLE,
        f"the image cannot be pulled: {why}",
        where=image,
        remedy="Check that the registry is available; docker login stores your credentials.",
    )
