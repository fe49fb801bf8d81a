"""``edl serve``."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import socket
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from edl.plugins.commands import argument, command, errors_as_output, option, terminal
from edl.plugins.errors import EdlError, ErrorCode, usage
from edl_runtime.local import process_environment

if TYPE_CHECKING:
    from edl_serve.served_model import Predictor

_LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@command(
    "serve",
    examples="edl serve circle-model\n"
    "edl serve s3://bucket/my_model --port 8501 --postprocess softmax\n"
    "edl serve releases\n"
    'curl -H \'Content-Type: application/json\' -d \'{"instances": [{"x": 0.1, "y": 0.2}]}\' '
    "http://127.0.0.1:8501/v1/models/circle-model:predict",
)
@argument(
    "model",
    metavar="MODEL",
    help="Trained model: the --output of edl train, or the folder of edl release; or its URI.",
)
@option("--port", type=click.IntRange(0, 65535), default=8501, metavar="N", help="Port; 0: any.")
@option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on.")
@option("--name", default="", metavar="NAME", help="Name in addresses. [default: of the folder]")
@option(
    "--postprocess",
    type=click.Choice(["argmax", "sigmoid", "softmax"]),
    default=None,
    help="Function of the outputs. [default: they stay as they are]",
)
def serve(model: str, port: int, host: str, name: str, postprocess: str | None) -> None:
    """Answer predictions of a trained model over HTTP.

    Requests have records as they were before training: the model file's own input function reads
    them. The address is that of TensorFlow Serving, POST /v1/models/NAME:predict; a page to try
    the model is at /. Requests that come at the same time are computed together. There is no
    authentication: all who reach the port can use the model. Ctrl-C ends the server.

    Of a folder of edl release, the last release is served, and new ones as they come.
    """
    with errors_as_output(None):
        _serve(model, port, host, name or _name_of(model), postprocess or "")


def _serve(place: str, port: int, host: str, name: str, postprocess: str) -> None:
    if not _NAME.fullmatch(name):
        raise usage(
            f"the name {name!r} cannot be part of an address",
            where="--name",
            remedy="Use letters, digits, dots, hyphens and underscores.",
        )
    _hash_as_jobs()
    import uvicorn

    from edl_serve.server import build_app

    with _listen(host, port) as listener, _open(place, postprocess) as model:
        with _without_output_of_libraries():
            model.prepare()
        address = f"http://{_in_url(host)}:{listener.getsockname()[1]}"
        hosts = _LOOPBACK if host in (*_LOOPBACK, "::1") else ["*"]
        config = uvicorn.Config(build_app(model, name, hosts), log_level="warning")
        terminal.message(f"{name}: {address}/  (Ctrl-C ends it)")
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _open(place: str, postprocess: str) -> Iterator[Predictor]:
    """Yield the model at a place, or that of the last release in it."""
    from edl_serve.releases import LastRelease, list_releases
    from edl_serve.served_model import ServedModel

    def open_model(at: str) -> ServedModel:
        return ServedModel(at, postprocess)

    if not list_releases(place):
        yield open_model(place)
        return
    model, over = LastRelease(place, open_model), threading.Event()
    follower = threading.Thread(target=model.follow, args=[over], name="releases", daemon=True)
    follower.start()
    yield model
    over.set()


def _hash_as_jobs() -> None:
    """Run this command anew if texts have other hashes than in jobs, which number sets of them."""
    if changes := process_environment.order_sets(os.environ):
        python, *arguments = sys.orig_argv
        sys.stderr.flush()
        os.execve(sys.executable, [python, *arguments], {**os.environ, **changes})


@contextlib.contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens. Raises: EdlError: PORT_IN_USE."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()  # a request may come before the server has started
        except OSError as error:
            raise EdlError(
                ErrorCode.PORT_IN_USE,
                f"the address cannot be used: {error.strerror}",
                where=f"{host}:{port}",
                remedy="Choose another --port, or --port 0 for any.",
            ) from None
        yield listener


@contextlib.contextmanager
def _without_output_of_libraries() -> Iterator[None]:
    """Hide what TensorFlow writes while it is imported; Python's own exceptions are not hidden."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _name_of(place: str) -> str:
    return posixpath.basename(place.rstrip("/")) or "model"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
