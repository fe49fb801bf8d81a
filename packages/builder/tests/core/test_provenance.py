"""What a builder states about an image that it has built."""

from __future__ import annotations

import json

from edl_builder.core.build_request import BuildRequest
from edl_builder.core.content import Runtime
from edl_builder.core.identifiers import BuildId, Key
from edl_builder.core.provenance import Materials, statement
from edl_builder.core.references import Reference
from edl_builder.core.source_policy import SourcePolicy, allow


def test_all_that_was_asked_for_and_all_that_went_in_is_named() -> None:
    target = Reference("r.example.com", "team/zoo")
    base = Reference("r.example.com", "edl/worker", "1")
    source = allow("https://git.example.com/zoo.git", "v2", "models", "company", SourcePolicy())
    request = BuildRequest(target, "v1", base, (("team", "vision"),), source)
    materials = Materials(
        Reference("r.example.com", "edl/worker", digest="sha256:" + "b" * 64),
        "c" * 40,
        "d" * 64,
        Runtime((("edl_worker-1.whl", "e" * 64),), ("edl-worker[cpu]",)),
    )
    image = Reference("r.example.com", "team/zoo", digest="sha256:" + "a" * 64)
    found = statement(image, request, BuildId("7"), Key("f" * 64), materials, "https://b.test")
    assert found["subject"] == [{"name": "r.example.com/team/zoo", "digest": {"sha256": "a" * 64}}]
    definition = found["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {
        "repository": "r.example.com/team/zoo",
        "tag": "v1",
        "base": "r.example.com/edl/worker:1",
        "labels": {"team": "vision"},
        "git": {"url": "https://git.example.com/zoo.git", "ref": "v2", "folder": "models"},
    }
    assert [each["digest"] for each in definition["resolvedDependencies"]] == [
        {"sha256": "b" * 64},
        {"sha256": "d" * 64},
        {"sha256": "e" * 64},
        {"gitCommit": "c" * 40},
    ]
    assert found["predicate"]["runDetails"] == {
        "builder": {"id": "https://b.test"},
        "metadata": {"invocationId": "7"},
    }
    assert "company" not in json.dumps(found)  # no credential is named, either
