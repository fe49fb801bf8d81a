"""Makes the images of a Docker engine reproducible, and removes old ones.

An engine writes times and the numbers of its containers into the configuration of an image, so two
builds of the same differ. The image that is pushed has the same layers and a configuration without
them. The engine's own stays next to it, under another tag, since its steps are the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from docker.errors import APIError

from edl_builder.core.ports import WriteLine
from edl_builder.core.recipe import EPOCH
from edl_builder.core.references import Reference

_STEPS = "-steps"
_NAMELESS = "<none>:<none>"
_CREATED = datetime.fromtimestamp(EPOCH, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
_OF_THE_ENGINE = ("Image", "Hostname", "Domainname")
"""The fields that a configuration has from the container of the last step."""


def steps_name(name: Reference) -> Reference:
    """Return the name under which the engine's own image of a build stays."""
    return replace(name, tag=f"{name.tag}{_STEPS}")


class EngineImages:
    """The images of an engine.

    Args:
        client: of the engine's own interface, open.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def tag_reproducibly(self, steps: str, name: str, on_line: WriteLine, base: str = "") -> None:
        """Name an image that has the layers of another one, and nothing random.

        An engine that cannot do that, because it wants to have all layers sent again, gives the
        name to the image as it is.

        Args:
            steps: the image that was built.
            name: to be given, with a tag.
            on_line: told if it cannot be done.
            base: on which the image was built, for its history; empty: that does not tell.

        Raises:
            APIError: the engine failed.
        """
        built = self._client.inspect_image(steps)
        below = len(self._client.inspect_image(base)["RootFS"]["Layers"]) if base else 0
        config = json.dumps(_reproducible_config(built, base, below), sort_keys=True).encode()
        image = f"sha256:{hashlib.sha256(config).hexdigest()}"
        try:
            list(self._client.load_image(_archive(config, len(built["RootFS"]["Layers"]))))
            self._client.inspect_image(image)
        except APIError as error:
            on_line(f"equal builds will differ: this engine takes no image by its layers: {error}")
            image = built["Id"]
        repository, _, tag = name.rpartition(":")
        self._client.tag(image, repository, tag, force=True)

    def remove_old(self, label: Mapping[str, Any], keep: int) -> None:
        """Remove all but the ``keep`` newest images with a label and a name."""
        found = [
            (image, names)
            for image in self._client.images(filters=label)
            if (names := _names(image)) != [_NAMELESS]
        ]
        kept: set[str] = set()
        finished = [(i, names) for i, names in found if not all(map(_is_steps, names))]
        # The list has whole seconds, and no order within them; the image itself has no time.
        finished.sort(key=lambda each: self._tagged_at(each[0]), reverse=True)
        for _, names in finished[:keep]:
            kept.update(names, (f"{name}{_STEPS}" for name in names))
        for _, names in found:
            for name in set(names) - kept:
                # In use by a container: a later run removes it.
                with contextlib.suppress(APIError):
                    self._client.remove_image(name)

    def _tagged_at(self, image: Mapping[str, Any]) -> str:
        return str(self._client.inspect_image(image["Id"])["Metadata"]["LastTagTime"])


def _reproducible_config(built: Mapping[str, Any], base: str, below: int) -> dict[str, Any]:
    layers = built["RootFS"]["Layers"]
    config = {
        name: value
        for name, value in built["Config"].items()
        if name not in _OF_THE_ENGINE and value not in (None, False, "", [], {})
    }
    history = [
        {"created": _CREATED, "created_by": base if number < below else "edl_builder"}
        for number in range(len(layers))
    ]
    found = {
        "architecture": built["Architecture"],
        "os": built["Os"],
        "created": _CREATED,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": history,
    }
    return {**found, "variant": built["Variant"]} if built.get("Variant") else found


def _archive(config: bytes, layers: int) -> bytes:
    """Return an archive of an image without its layers, which the engine already has."""
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [
        {
            "Config": name,
            "RepoTags": None,
            "Layers": [f"{number}/layer.tar" for number in range(layers)],
        }
    ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in ((name, config), ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _names(image: Mapping[str, Any]) -> list[str]:
    return list(image.get("RepoTags") or [_NAMELESS])


def _is_steps(name: str) -> bool:
    return name.endswith(_STEPS)
