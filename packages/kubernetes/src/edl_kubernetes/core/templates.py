"""Checks pod templates of users, and merges them by the rules of ``kubectl patch``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from edl.plugins.errors import Problem, usage
from edl.plugins.submissions import kubernetes_value_types
from edl_kubernetes.cluster import objects

JsonObject = dict[str, Any]

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
}
"""The keys by which lists are merged; Kubernetes replaces all other lists as a whole."""

_REFERENCES = {
    # in volumes; within a projected one, the key is "name"
    "persistentVolumeClaim": ("persistentvolumeclaim", "claimName"),
    "secret": ("secret", "secretName"),
    "configMap": ("configmap", "name"),
    # in variables
    "secretKeyRef": ("secret", "name"),
    "secretRef": ("secret", "name"),
    "configMapKeyRef": ("configmap", "name"),
    "configMapRef": ("configmap", "name"),
}
"""Fields that name another object, with its kind and the key of its name."""

_DIRECTIVE = "$patch"
_RESERVED_METADATA = ("name", "generateName", "namespace", "ownerReferences")


def check(template: Any, where: str) -> JsonObject:
    """Return the metadata and spec of a Pod or a PodTemplate, which may be merged.

    Args:
        template: the content of the file, as plain values.
        where: the file, for messages.

    Raises:
        Problem: USAGE; it is no pod, or has fields that edl sets.
    """
    if not isinstance(template, dict):
        raise _refusal("it contains no object", where, "Write a Pod, or the part that you need.")
    kind = template.get("kind", "Pod")
    if kind == "PodTemplate":
        template = template.get("template") or {}
    elif kind != "Pod":
        raise _refusal(f"it is a {kind}", where, "Write kind: Pod, or leave kind out.")
    unknown = sorted(template.keys() - {"apiVersion", "kind", "metadata", "spec", _DIRECTIVE})
    if unknown:
        raise _refusal(
            f"a pod has no field {unknown[0]}", where, "Containers and volumes are below spec."
        )
    for part in ("metadata", "spec"):
        if not isinstance(template.get(part, {}), dict):
            raise _refusal(f"{part} is not an object", where, "See: kubectl explain pod")
    reserved = _find_reserved(template.get("metadata", {}), template.get("spec", {}))
    if reserved:
        raise _refusal(f"edl sets {reserved[0]} itself", where, f"Remove {reserved[0]}.")
    return {part: template[part] for part in ("metadata", "spec") if part in template}


def references(template: Any) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the objects without which the pods of a template cannot start."""
    if isinstance(template, Mapping):
        for field, value in template.items():
            if isinstance(value, Mapping) and field in _REFERENCES and not value.get("optional"):
                kind, key = _REFERENCES[field]
                if isinstance(name := value.get(key, value.get("name")), str):
                    yield kind, name
            yield from references(value)
    elif isinstance(template, list):
        for item in template:
            yield from references(item)


def merge(base: Any, patch: Any, field: str = "") -> Any:
    """Return a new value: ``base`` with a strategic merge patch.

    Args:
        base: the value to change.
        patch: the changes.
        field: the name of the field that holds the value.

    Raises:
        Problem: USAGE; a list lacks the key by which it is merged.
    """
    if isinstance(base, dict) and isinstance(patch, Mapping):
        return _merge_objects(base, patch)
    if isinstance(base, list) and isinstance(patch, list) and field in _MERGE_KEYS:
        return _merge_lists(base, patch, field)
    return _without_directives(patch)


def _merge_objects(base: JsonObject, patch: Mapping[str, Any]) -> JsonObject:
    if patch.get(_DIRECTIVE) == "replace":
        replaced: JsonObject = _without_directives(patch)
        return replaced
    merged = deepcopy(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif name != _DIRECTIVE:
            merged[name] = merge(merged.get(name), value, name)
    return merged


def _merge_lists(base: Sequence[Any], patch: Sequence[Any], field: str) -> list[Any]:
    key = _MERGE_KEYS[field]
    for item in patch:
        if not isinstance(item, dict) or not (key in item or _DIRECTIVE in item):
            raise usage(
                f"an item of {field} in the pod template has no {key}",
                where=f"--pod-template: {field}",
                remedy=f"Kubernetes merges {field} by {key}: give each item one.",
            )
    if any(item == {_DIRECTIVE: "replace"} for item in patch):
        return [_without_directives(item) for item in patch if key in item]
    merged = {item[key]: deepcopy(item) for item in base}
    for item in patch:
        name = item[key]
        if item.get(_DIRECTIVE) == "delete":
            merged.pop(name, None)
        elif field == "volumes":  # a volume has one source, so that of the base must not stay
            merged[name] = _without_directives(item)
        else:
            merged[name] = merge(merged.get(name), item)
    return list(merged.values())


def _without_directives(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = ((name, item) for name, item in value.items() if name != _DIRECTIVE)
        return {name: _without_directives(item) for name, item in kept if item is not None}
    if isinstance(value, list):
        return [_without_directives(item) for item in value]
    return deepcopy(value)


def _find_reserved(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Sequence[str]:
    """Return the fields of a template that only edl may set."""
    found = [f"metadata.{name}" for name in _RESERVED_METADATA if name in metadata]
    labels = metadata.get("labels") or {}
    found += [f"the label {name}" for name in labels if kubernetes_value_types.is_own_key(name)]
    if spec.get("restartPolicy", "Never") != "Never":
        found.append("spec.restartPolicy")
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict) and volume.get("name") == objects.IDENTITY_VOLUME:
            found.append(f"the volume {objects.IDENTITY_VOLUME}")
    for container in spec.get("containers") or ():
        if isinstance(container, dict) and container.get("name") == objects.CONTAINER:
            found += [
                f"{name} of the container {objects.CONTAINER}"
                for name in ("command", "args", "image")
                if name in container
            ]
    return found


def _refusal(what: str, where: str, remedy: str) -> Problem:
    return usage(f"the pod template cannot be used: {what}", where=where, remedy=remedy)
