"""The names of images, their digests, repositories and folders."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

DOCKER_HUB = "docker.io"

IMAGE_ZOO = "/model_zoo"
"""The folder of the model zoo in an image."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[^@\s]+")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository: the ``host[:port]`` of its registry, and its path there."""

    registry: str
    path: str

    def __str__(self) -> str:
        return f"{self.registry}/{self.path}"


def repository_of(image: str) -> Repository:
    """Return the repository of an image, from its name with or without a digest, without a tag.

    A name without a registry means Docker Hub's.
    """
    name = image.partition("@")[0]
    registry, slash, path = name.partition("/")
    if slash and ("." in registry or ":" in registry or registry == "localhost"):
        return Repository(registry, path)
    return Repository(DOCKER_HUB, name if slash else f"library/{name}")


def is_digest(text: str) -> bool:
    """Tell whether a text is the digest of an image, as registries write it."""
    return _DIGEST.fullmatch(text) is not None


def pinned_name(image: str) -> str:
    """Return the name of a pinned image without its digest; empty if it is not pinned."""
    name, _, digest = image.partition("@")
    return name if _NAME.fullmatch(name) and is_digest(digest) else ""


def is_on_this_machine(registry: str) -> bool:
    """Tell whether ``host[:port]`` is a loopback address, whose services need no TLS."""
    try:
        host = urlsplit(f"//{registry}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
