"""Merging of pod templates, by the rules of strategic merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from edl.core.problem import Problem
from edl_kubernetes.core import templates

BASE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "edl",
                "image": "zoo",
                "env": [{"name": "HOME", "value": "/tmp"}],
                "volumeMounts": [{"name": "edl-tmp", "mountPath": "/tmp"}],
            }
        ],
        "tolerations": [{"key": "lost"}],
        "volumes": [{"name": "edl-tmp", "emptyDir": {}}],
    },
}


def merge(spec: dict[str, Any]) -> Any:
    return templates.merge(BASE, {"spec": spec})["spec"]


def test_containers_variables_and_mounts_are_merged_by_their_keys() -> None:
    spec = merge(
        {
            "containers": [
                {"name": "log-shipper", "image": "fluent"},
                {
                    "name": "edl",
                    "env": [{"name": "HOME", "value": "/home"}, {"name": "X", "value": "1"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                },
            ],
            "volumes": [{"name": "data", "hostPath": {"path": "/srv"}}],
        }
    )
    edl, shipper = spec["containers"]
    assert shipper == {"name": "log-shipper", "image": "fluent"}
    assert edl["image"] == "zoo"
    assert edl["env"] == [{"name": "HOME", "value": "/home"}, {"name": "X", "value": "1"}]
    assert [mount["mountPath"] for mount in edl["volumeMounts"]] == ["/tmp", "/data"]
    assert [volume["name"] for volume in spec["volumes"]] == ["edl-tmp", "data"]


def test_lists_without_a_key_are_replaced_and_null_removes() -> None:
    spec = merge({"tolerations": [{"key": "gpu"}], "restartPolicy": None})
    assert spec["tolerations"] == [{"key": "gpu"}]
    assert "restartPolicy" not in spec


def test_a_volume_gets_another_source_instead_of_a_second_one() -> None:
    spec = merge({"volumes": [{"name": "edl-tmp", "ephemeral": {}}]})
    assert spec["volumes"] == [{"name": "edl-tmp", "ephemeral": {}}]


def test_directives_delete_and_replace() -> None:
    spec = merge({"volumes": [{"name": "edl-tmp", "$patch": "delete"}]})
    assert spec["volumes"] == []
    spec = merge({"containers": [{"$patch": "replace"}, {"name": "only"}]})
    assert spec["containers"] == [{"name": "only"}]


def test_the_base_is_not_changed() -> None:
    before = repr(BASE)
    merge({"containers": [{"name": "edl", "env": [{"name": "HOME", "value": "/"}]}]})
    assert repr(BASE) == before


def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(Problem, match="an item of containers in the pod template has no name"):
        merge({"containers": [{"image": "x"}]})


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ([], "contains no object"),
        ({"kind": "Deployment"}, "it is a Deployment"),
        ({"containers": []}, "no field containers"),
        ({"spec": []}, "spec is not an object"),
        ({"metadata": {"name": "mine"}}, "edl sets metadata.name itself"),
        ({"metadata": {"labels": {"app.kubernetes.io/name": "x"}}}, "app.kubernetes.io/name"),
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
        ({"spec": {"volumes": [{"name": "edl-identity"}]}}, "the volume edl-identity"),
        ({"spec": {"containers": [{"name": "edl", "command": ["sh"]}]}}, "command of the cont"),
    ],
)
def test_what_a_template_may_not_say(template: Any, what: str) -> None:
    with pytest.raises(Problem) as caught:
        templates.check(template, "pod.yaml")
    assert what in str(caught.value)
    assert caught.value.where == "pod.yaml"
    assert caught.value.remedy


def test_a_pod_template_object_is_taken_by_its_template() -> None:
    inner = {"spec": {"nodeSelector": {"pool": "gpu"}}}
    assert templates.check({"kind": "PodTemplate", "template": inner}, "pod.yaml") == inner


def test_what_a_template_s_pods_cannot_start_without_is_found() -> None:
    projected = {"sources": [{"secret": {"name": "s2"}}, {"configMap": {"name": "c2"}}]}
    variables = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "k"}}},
        {
            "name": "B",
            "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k", "optional": True}},
        },
    ]
    spec = {
        "volumes": [
            {"name": "a", "secret": {"secretName": "s1"}},
            {"name": "b", "configMap": {"name": "c1"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "p1"}},
            {"name": "d", "secret": {"secretName": "no", "optional": True}},
            {"name": "e", "projected": projected},
            {"name": "f", "emptyDir": {}},
        ],
        "containers": [
            {"name": "edl", "env": variables, "envFrom": [{"secretRef": {"name": "s4"}}]}
        ],
    }
    assert sorted(templates.references({"spec": spec})) == [
        *(("configmap", name) for name in ("c1", "c2")),
        ("persistentvolumeclaim", "p1"),
        *(("secret", name) for name in ("s1", "s2", "s3", "s4")),
    ]
