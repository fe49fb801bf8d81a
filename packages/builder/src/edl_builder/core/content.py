"""The content of a model zoo, and the key of an image."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edl_builder.core.identifiers import Key


@dataclass(frozen=True, slots=True, order=True)
class ZooFile:
    """A file or link of the zoo; directories are not content.

    Attributes:
        path: within the zoo, with ``/``.
        sha256: of the content, hex; empty for a link.
        executable: whether it may be run.
        target: of a link.
    """

    path: str
    sha256: str = ""
    executable: bool = False
    target: str = ""


@dataclass(frozen=True, slots=True)
class Zoo:
    """A model zoo as received: its files in any order.

    ``requirements`` is what pip gets: its requirements.txt, judged and written anew.
    """

    files: tuple[ZooFile, ...]
    nbytes: int
    requirements: bytes = b""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The worker, which each image gets in addition to the zoo.

    Attributes:
        wheels: name and SHA-256 of each wheel that the service brings.
        requirements: what pip installs, found among the wheels or in the index.
    """

    wheels: tuple[tuple[str, str], ...] = ()
    requirements: tuple[str, ...] = ()


def content_key(
    zoo: Zoo,
    base_digest: str,
    runtime: Runtime,
    recipe: str,
    labels: Mapping[str, str],
    repository: str,
) -> Key:
    """Return the key of the image that these determine.

    Times, owners and the order of an archive do not count. ``recipe`` is the text of the
    Dockerfile, so that a new version of the builder makes new images where it would build
    differently; ``repository`` is the one that the image is for.
    """

    def lines() -> Sequence[object]:
        return [
            "edl image 2",
            repository,
            base_digest,
            recipe,
            sorted(runtime.wheels),
            list(runtime.requirements),
            sorted(labels.items()),
            [[f.path, f.sha256, f.executable, f.target] for f in sorted(zoo.files)],
        ]

    text = json.dumps(lines(), separators=(",", ":"), ensure_ascii=True)
    return Key(hashlib.sha256(text.encode("ascii", "strict")).hexdigest())
