"""The adapter for a Docker engine, through its own interface."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import docker
import requests
import urllib3
from docker.errors import APIError, DockerException, ImageNotFound

from edl_builder.adapters.engine_images import EngineImages, steps_name
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.ports import Cancellation, StepCounts, WriteLine
from edl_builder.core.recipe import IMAGE_LABEL
from edl_builder.core.redaction import MAX_LINE_CHARS, without_escapes
from edl_builder.core.references import Reference
from edl_registry.registry import RegistryAccess
from edl_runtime.image_names import DOCKER_HUB

log = logging.getLogger(__name__)

_CALL_S = 60.0
_SILENCE_S = 1800.0
"""How long a step may print nothing; the builder's own limit comes first."""

_STEP = re.compile(r"Step \d+/(\d+) :")
_PIP_ERROR = re.compile(r"(?i:error): \S")
_PIP_ASIDE = re.compile(
    r"\(from versions: |Ignored the following|subprocess-exited|dependency resolver does not"
)
"""Errors of pip that are lists, or that another error sums up."""

_CACHED = " ---> Using cache"
_LAST = 60


class DockerEngine:
    """One engine, as a socket or address.

    Args:
        url: ``unix:///var/run/docker.sock`` or ``tcp://host:port``; empty: Docker's own
            environment variables.
        network: of the steps of a build; empty: the engine's default.
        access: credentials for registries, by ``host[:port]``.
    """

    def __init__(
        self, url: str = "", network: str = "", access: Mapping[str, RegistryAccess] | None = None
    ) -> None:
        self._url = url
        self._network = network
        self._access = access or {}

    def ping(self) -> None:
        """Return if the engine answers. Raises: BuilderError: ENGINE."""
        with self._client(_CALL_S) as client:
            client.ping()

    def build(
        self,
        context: PurePath,
        base: Reference,
        name: Reference,
        labels: Mapping[str, str],
        on_line: WriteLine,
        cancellation: Cancellation,
    ) -> StepCounts:
        """Build a context. Raises: BuilderError: see ``Engine``."""
        with self._client(_SILENCE_S) as client, _CancellableCalls(client, cancellation) as calls:
            self._pull(client, base, calls, on_line)
            layers = cached = 0
            last: list[str] = []
            with open(context, "rb") as file:
                messages = client.build(
                    fileobj=file,
                    custom_context=True,
                    tag=str(steps_name(name)),
                    labels=dict(labels),
                    network_mode=self._network or None,
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
                for message in calls.follow(messages):
                    if "error" in message:
                        raise _build_failed(str(message["error"]), last)
                    for line in lines_of(message.get("stream", "")):
                        if step := _STEP.match(line):
                            layers = int(step[1])
                        cached += line == _CACHED
                        last = [*last[-_LAST:], line]
                        on_line(line)
            EngineImages(client).tag_reproducibly(
                str(steps_name(name)), str(name), on_line, str(base)
            )
        return StepCounts(layers, cached)

    def push(self, name: Reference, on_line: WriteLine, cancellation: Cancellation) -> str:
        """Push an image, return its digest. Raises: BuilderError: see ``Engine``."""
        with self._client(_SILENCE_S) as client, _CancellableCalls(client, cancellation) as calls:
            messages = client.push(
                name.repository,
                tag=name.tag,
                stream=True,
                decode=True,
                auth_config=self._auth(name),
            )
            digest = ""
            for message in calls.follow(messages):
                if "error" in message:
                    raise _transfer_failed(name, str(message["error"]))
                digest = message.get("aux", {}).get("Digest", digest)
                if status := _status_line(message):
                    on_line(status)
            if not digest:
                raise _transfer_failed(name, "the engine named no digest")
            return digest

    def prune(self, keep: int) -> bool:
        """Remove half-built and old images. Raises: BuilderError: ENGINE."""
        mark = {"label": [f"{IMAGE_LABEL}=1"]}
        with self._client(_CALL_S * 5) as client:
            EngineImages(client).remove_old(mark, keep)
            client.prune_images(filters={**mark, "dangling": True})
            return not client.images(filters={**mark, "dangling": True})

    def _pull(
        self, client: Any, base: Reference, calls: _CancellableCalls, on_line: WriteLine
    ) -> None:
        try:
            client.inspect_image(str(base))
        except ImageNotFound:
            on_line(f"pulling {base}")
            try:
                messages = client.pull(
                    base.repository,
                    tag=base.digest or base.tag,
                    stream=True,
                    decode=True,
                    auth_config=self._auth(base),
                )
            except APIError as error:
                raise _transfer_failed(base, str(error.explanation)) from error
            for message in calls.follow(messages):
                if "error" in message:
                    raise _transfer_failed(base, str(message["error"])) from None
                if status := _status_line(message):
                    on_line(status)

    def _auth(self, name: Reference) -> dict[str, str] | None:
        found = self._access.get(name.registry)
        if found is None or not found.username:
            return None
        server = "https://index.docker.io/v1/" if name.registry == DOCKER_HUB else name.registry
        return {
            "username": found.username,
            "password": found.password,
            "serveraddress": server,
        }

    @contextlib.contextmanager
    def _client(self, timeout_s: float) -> Iterator[Any]:
        """Open a connection for one piece of work, which ends with it."""
        try:
            settings = {"base_url": self._url} if self._url else docker.utils.kwargs_from_env()
            client = docker.APIClient(version="auto", timeout=timeout_s, **settings)
            try:
                yield client
            finally:
                client.close()
        except APIError as error:
            raise BuilderError(
                Reason.ENGINE, f"the engine refused: {error.explanation}", where="docker"
            ) from error
        except (
            DockerException,
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        ) as error:
            raise BuilderError(
                Reason.ENGINE,
                f"the engine cannot be reached: {type(error).__name__}",
                where=self._url or "docker",
                remedy="Check that it runs, and that the builder may use its socket.",
            ) from error


class _CancellableCalls:
    """Shuts down a client's connections on cancellation, so that the engine ends the work, too."""

    def __init__(self, client: Any, cancellation: Cancellation) -> None:
        self._cancellation = cancellation
        self._answers: list[requests.Response] = []
        client.hooks["response"].append(self._record)

    def __enter__(self) -> _CancellableCalls:
        self._unregister: Callable[[], None] = self._cancellation.on_cancel(self._shut_down)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._unregister()
        if error is not None:
            # A broken connection is what a cancellation looks like.
            self._cancellation.check()

    def _record(self, answer: requests.Response, *_: object, **__: object) -> None:
        self._answers.append(answer)
        # Cancelled while the engine was called: the callback has run already.
        try:
            self._cancellation.check()
        except BuilderError:
            _shut_down_connection(answer)

    def _shut_down(self) -> None:
        for answer in list(self._answers):
            _shut_down_connection(answer)

    def follow(self, messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for message in messages:
            self._cancellation.check()
            yield message
        self._cancellation.check()


def _shut_down_connection(answer: requests.Response) -> None:
    connection = getattr(answer.raw, "connection", None) or getattr(answer.raw, "_connection", None)
    sock = getattr(connection, "sock", None)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def lines_of(text: str) -> list[str]:
    """Return the engine's lines without control characters; no line hides the next one."""
    return [
        "".join(ch for ch in line if ch.isprintable() or ch == "\t")[:MAX_LINE_CHARS]
        for line in map(without_escapes, re.split(r"[\r\n]+", text))
        if line.strip()
    ]


def _status_line(message: Mapping[str, Any]) -> str:
    """Return a line for an event; none for progress bars."""
    if message.get("progressDetail"):
        return ""
    status = str(message.get("status", ""))
    return f"{message['id']}: {status}" if "id" in message else status


def pip_failure(lines: Iterable[str]) -> str:
    """Return the line of a build's log that says why pip failed; empty if there is none."""
    plain = (without_escapes(line).strip() for line in lines)
    errors = (line for line in plain if _PIP_ERROR.match(line) and not _PIP_ASIDE.search(line))
    return next(errors, "").partition(": ")[2]


def _build_failed(message: str, last: list[str]) -> BuilderError:
    step = next((line for line in reversed(last) if _STEP.match(line)), "")
    shown = pip_failure(last) or next(iter(lines_of(message)), "no message")
    return BuilderError(
        Reason.BUILD,
        f"the build failed: {shown}",
        where=step,
        remedy="See the lines before; most often a package of requirements.txt is not found.",
        detail="\n".join(last),
    )


def _transfer_failed(name: Reference, message: str) -> BuilderError:
    shown = lines_of(message)
    return BuilderError(
        Reason.REGISTRY,
        f"{name.repository} cannot be pushed or pulled: {shown[0] if shown else 'no message'}",
        where=str(name),
        remedy="Check the name, and the builder's credential for this registry.",
    )
