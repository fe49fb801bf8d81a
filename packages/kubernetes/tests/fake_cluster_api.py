"""The API of a cluster that has only the objects of jobs, and fails when it is told to."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from edl_kubernetes.cluster.api import Listing
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_runtime.timestamps import rfc3339

Happens = Callable[[str], object]


class Api:
    """The API of a cluster.

    Attributes:
        before, after: called with what is called, before and after it has its effect.
        behind_s: how far its clock is behind the one of this machine.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.before: Happens = lambda called: None
        self.after: Happens = lambda called: None
        self.behind_s = 0.0
        self._uids = 0

    def create(self, collection: str, item: dict[str, Any]) -> dict[str, Any]:
        return self._call(f"create {item['kind']}", lambda: self._create(collection, item))

    def get(self, path: str) -> dict[str, Any]:
        return self._call("get", lambda: self._get(path))

    def list(self, prefix: str, selector: str) -> Listing:
        assert selector == "app.kubernetes.io/managed-by=edl"
        items = [item for path, item in self.objects.items() if path.startswith(prefix)]
        return self._call("list", lambda: Listing(items, "1"))

    def patch(self, path: str, changes: dict[str, Any]) -> None:
        def change() -> None:
            item = self._get(path)
            if changes["metadata"].get("uid", item["metadata"]["uid"]) != item["metadata"]["uid"]:
                raise ApiError(409, "Conflict", "the uid is another one")
            item["metadata"]["annotations"] = {}
            item["spec"] |= changes.get("spec", {})

        self._call("patch", change)

    def delete(self, path: str, *, uid: str) -> None:
        def remove() -> None:
            if self._get(path)["metadata"]["uid"] != uid:
                raise ApiError(409, "Conflict", "the uid is another one")
            del self.objects[path]

        self._call("delete", remove)

    def _call(self, called: str, effect: Callable[[], Any]) -> Any:
        self.before(called)
        found = effect()
        self.after(called)
        return found

    def _create(self, collection: str, item: dict[str, Any]) -> dict[str, Any]:
        path = f"{collection}/{item['metadata']['name']}"
        if path in self.objects:
            raise ApiError(409, "AlreadyExists", "it exists")
        self._uids += 1
        metadata = {**copy.deepcopy(item["metadata"]), "uid": str(self._uids)}
        metadata["creationTimestamp"] = rfc3339(time.time() - self.behind_s, "seconds")
        self.objects[path] = {**item, "metadata": metadata, "spec": dict(item.get("spec", {}))}
        return dict(self.objects[path])

    def _get(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        found: dict[str, Any] = self.objects[path]
        return found


def fails(name: str, *errors: Exception) -> Happens:
    """The first calls of this name fail."""
    left = list(errors)

    def happen(called: str) -> None:
        if called == name and left:
            raise left.pop(0)

    return happen


def away(*names: str) -> Happens:
    """No call of these names is answered."""

    def happen(called: str) -> None:
        if called in names:
            raise ApiUnavailable("no route to host")

    return happen
