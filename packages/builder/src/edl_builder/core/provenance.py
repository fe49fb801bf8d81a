"""Statements about how an image was made: in-toto statements with SLSA's provenance, version 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edl_builder.core.build_request import BuildRequest
from edl_builder.core.content import Runtime
from edl_builder.core.identifiers import BuildId, Key
from edl_builder.core.references import Reference
from edl_registry.signatures import PROVENANCE

_STATEMENT = "https://in-toto.io/Statement/v1"
_BUILD_TYPE = "urn:edl:model-zoo-image:v1"


@dataclass(frozen=True, slots=True)
class Materials:
    """The materials of an image.

    Attributes:
        base: pinned by its digest.
        commit: of the git repository; empty for an archive.
        context_sha256: of the build context: Dockerfile, model zoo, packages of the builder.
        runtime: the worker.
    """

    base: Reference
    commit: str
    context_sha256: str
    runtime: Runtime


def statement(
    image: Reference,
    request: BuildRequest,
    build: BuildId,
    key: Key,
    materials: Materials,
    builder_id: str,
) -> Mapping[str, Any]:
    """Return the statement about an image, as plain values.

    Args:
        image: pinned by its digest.
        request: what the caller asked for; all of it is in the statement, but the credential.
        build: the number of the build.
        key: of the image's content.
        builder_id: names the builder, a URI.
    """
    outer: dict[str, Any] = {
        "repository": request.repository.repository,
        "tag": request.tag,
        "base": str(request.base),
        "labels": dict(request.labels),
    }
    found: list[dict[str, Any]] = [
        {"uri": f"docker://{materials.base}", "digest": _sha256(materials.base.digest)},
        {"name": "build context", "digest": {"sha256": materials.context_sha256}},
        *({"name": name, "digest": {"sha256": sha}} for name, sha in materials.runtime.wheels),
    ]
    if request.git is not None:
        source = request.git.source
        outer["git"] = {"url": str(source.url), "ref": source.ref, "folder": source.folder}
        found.append({"uri": f"git+{source.url}", "digest": {"gitCommit": materials.commit}})
    return {
        "_type": _STATEMENT,
        "subject": [{"name": image.repository, "digest": _sha256(image.digest)}],
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": outer,
                "internalParameters": {
                    "key": key,
                    "requirements": list(materials.runtime.requirements),
                },
                "resolvedDependencies": found,
            },
            "runDetails": {"builder": {"id": builder_id}, "metadata": {"invocationId": build}},
        },
    }


def _sha256(digest: str) -> dict[str, str]:
    return {"sha256": digest.removeprefix("sha256:")}
