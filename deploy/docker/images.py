"""Builds edl's own images: ``python deploy/docker/images.py [client builder master worker]``.

Needs the packages ``docker`` and ``edl_builder``, and an engine (``DOCKER_HOST`` or its usual
socket).
"""

from __future__ import annotations

import argparse
import importlib.resources
import io
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

from edl_builder.adapters.engine_images import EngineImages

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
NAMES = ("client", "builder", "master", "worker")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


class ImageError(Exception):
    """An image could not be built; the message ends with the last lines of the build."""


def build_image(
    name: str,
    *,
    tag: str = "",
    base: str = "",
    extra: str = "cpu",
    network: str = "",
    engine: str = "",
    fresh: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> str:
    """Build one image.

    Args:
        name: one of ``NAMES``.
        tag: of the image; ``edl-NAME:VERSION`` if empty.
        base: what to build on; the Dockerfile's own if empty.
        extra: of the worker: ``cpu``, ``gpu`` or empty.
        network: of the steps; the engine's default if empty.
        engine: URL; from the environment if empty.
        fresh: do every step anew, whatever the engine has.
        say: told every line of the build.

    Returns:
        The id of the image.

    Raises:
        ImageError: there is no engine, or a step failed.
    """
    tag = tag or f"edl-{name}:{VERSION}"
    arguments = {"VERSION": VERSION, "REVISION": _revision()}
    if base:
        arguments["BASE"] = base
    if name == "worker":
        arguments["EXTRA"] = extra
    try:
        client = (
            docker.APIClient(base_url=engine, version="auto", timeout=3600)
            if engine
            else docker.APIClient(version="auto", timeout=3600, **docker.utils.kwargs_from_env())
        )
        with client:
            return _build(client, name, tag, arguments, network, fresh, say)
    except DockerException as error:
        raise ImageError(f"edl-{name}: the engine says: {error}") from error


def _build(
    client: Any,
    name: str,
    tag: str,
    arguments: Mapping[str, str],
    network: str,
    fresh: bool,
    say: Callable[[str], None],
) -> str:
    last: list[str] = []
    for news in client.build(
        fileobj=io.BytesIO(_context(name)),
        custom_context=True,
        tag=f"{tag}-steps",
        labels=_labels(),
        buildargs=arguments,
        nocache=fresh,
        network_mode=network or None,
        rm=True,
        forcerm=True,
        decode=True,
    ):
        if "error" in news:
            raise ImageError("\n".join([f"edl-{name}: {news['error']}", *last]))
        for line in news.get("stream", "").splitlines():
            if line.strip():
                last = [*last[-15:], line]
                say(line)
    EngineImages(client).tag_reproducibly(f"{tag}-steps", tag, say)
    return str(client.inspect_image(tag)["Id"])


def _context(name: str) -> bytes:
    """The Dockerfile, the sources and the lock; nothing else of this folder is sent."""
    buffer = io.BytesIO()

    def select(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(info.name).parts
        if "tests" in parts or any(p.startswith(".") or p == "__pycache__" for p in parts):
            return None
        # Neither owners nor times of this machine: the engine's cache goes by content.
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(FOLDER / f"{name}.Dockerfile", "Dockerfile", filter=select)
        tar.add(FOLDER / "locks", "locks", filter=select)
        program = importlib.resources.files("edl_builder.in_image") / "sbom.py"
        with importlib.resources.as_file(program) as path:
            tar.add(path, "sbom.py", filter=select)
        tar.add(ROOT / "packages", "packages", filter=select)
    return buffer.getvalue()


def _revision() -> str:
    return _git("rev-parse", "HEAD") or "unknown"


def _labels() -> dict[str, str]:
    """Where the sources are, if that is a public place."""
    url = _git("remote", "get-url", "origin")
    is_public = url.startswith("https://") and "@" not in url
    return {"org.opencontainers.image.source": url} if is_public else {}


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the images that are named, or all."""
    parser = argparse.ArgumentParser(description="Builds edl's own images.")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME")
    parser.add_argument("--base", default="", help="image with Python 3.11 and pip")
    parser.add_argument("--extra", default="cpu", help="worker's TensorFlow: cpu or gpu")
    parser.add_argument("--network", default="", help="of the build's steps")
    parser.add_argument("--engine", default="", help="URL; else DOCKER_HOST")
    parser.add_argument("--prefix", default="edl-", help="of the images' names")
    options = parser.parse_args(arguments)
    for name in options.names or NAMES:
        tag = f"{options.prefix}{name}:{VERSION}"
        try:
            image = build_image(
                name,
                tag=tag,
                base=options.base,
                extra=options.extra,
                network=options.network,
                engine=options.engine,
                say=lambda line: print(line, file=sys.stderr),
            )
        except ImageError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{tag} {image}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
