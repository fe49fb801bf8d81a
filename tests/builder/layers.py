"""Images made of tar files, by the registry's own protocol.

The engine would copy them twice and compress them to push them: two minutes for TensorFlow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from tests.image_packages import Layer

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_TAR = "application/vnd.docker.image.rootfs.diff.tar"
_CALL_S = 300


def exists(image: str) -> bool:
    """Whether the registry has an image, by its name ``HOST:PORT/REPOSITORY:TAG``."""
    return _call("GET", _url(image, "manifests"), ok=(200, 404)).status_code == 200


def push(image: str, layers: Sequence[Layer], config: Mapping[str, Any]) -> None:
    """Push an image of tar files.

    Args:
        image: its name.
        layers: the lowest first.
        config: of containers.
    """
    listed = [_upload_layer(image, layer) for layer in layers]
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in listed]},
        "history": [_history(path) for path, _ in layers],
    }
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "layers": listed}
    _finish(image, manifest, described)


def add(base: str, layers: Sequence[Layer], image: str, **config: Any) -> None:
    """Push an image that is ``base`` with more layers.

    Args:
        base, image: names in one registry.
        layers: the lowest first.
        config: replaces parts of the configuration of containers; ``Env`` is added to it.
    """
    manifest = _call("GET", _url(base, "manifests")).json()
    described = _call("GET", _blob(base, manifest["config"]["digest"])).json()
    for layer in manifest["layers"]:
        _mount(image, base, layer["digest"])
    for path, digest in layers:
        manifest["layers"].append(_upload_layer(image, (path, digest)))
        described["rootfs"]["diff_ids"].append(f"sha256:{digest}")
        described["history"].append(_history(path))
    env = [*(described["config"].get("Env") or ()), *config.pop("Env", ())]
    described["config"] |= {**config, "Env": env}
    _finish(image, manifest, described)


def _history(path: Path) -> dict[str, str]:
    return {"created_by": f"ADD {path.name} /"}


def _upload_layer(image: str, layer: Layer) -> dict[str, Any]:
    """Return how a manifest describes the layer."""
    path, digest = layer[0], f"sha256:{layer[1]}"
    _upload(image, path, digest)
    return {"mediaType": _TAR, "size": path.stat().st_size, "digest": digest}


def _finish(image: str, manifest: dict[str, Any], described: Mapping[str, Any]) -> None:
    """Push the configuration, and the manifest that names it."""
    text = json.dumps(described).encode()
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    _upload(image, text, digest)
    manifest["config"] = {"mediaType": _CONFIG, "size": len(text), "digest": digest}
    _call(
        *("PUT", _url(image, "manifests")),
        data=json.dumps(manifest),
        headers={"Content-Type": _MANIFEST},
        ok=(201,),
    )


def _mount(image: str, base: str, digest: str) -> None:
    place = f"{_url(image, 'blobs', 'uploads/')}?mount={digest}&from={_parts(base)[1]}"
    _call("POST", place, ok=(201,))


def _upload(image: str, content: Path | bytes, digest: str) -> None:
    begun = _call("POST", _url(image, "blobs", "uploads/"), ok=(202,))
    place = begun.headers["Location"]
    place += f"{'&' if '?' in place else '?'}digest={digest}"
    headers = {"Content-Type": "application/octet-stream"}
    if isinstance(content, bytes):
        _call("PUT", place, data=content, headers=headers, ok=(201,))
        return
    with content.open("rb") as file:
        _call("PUT", place, data=file, headers=headers, ok=(201,))


def _parts(image: str) -> tuple[str, str, str]:
    host, _, rest = image.partition("/")
    repository, _, tag = rest.rpartition(":")
    return host, repository, tag


def _url(image: str, kind: str, what: str = "") -> str:
    host, repository, tag = _parts(image)
    return f"http://{host}/v2/{repository}/{kind}/{what or tag}"


def _blob(image: str, digest: str) -> str:
    return _url(image, "blobs", digest)


def _call(method: str, url: str, ok: tuple[int, ...] = (200,), **given: Any) -> requests.Response:
    headers = {"Accept": _MANIFEST, **given.pop("headers", {})}
    answer = requests.request(method, url, headers=headers, timeout=_CALL_S, **given)
    assert answer.status_code in ok, f"{method} {url}: {answer.status_code} {answer.text[:300]}"
    return answer
