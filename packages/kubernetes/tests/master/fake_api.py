"""An API server in memory that behaves as Kubernetes does where the master's code depends on it."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping

from edl_kubernetes.cluster.api import (
    ApiError,
    ApiUnavailable,
    JsonObject,
    KubernetesApi,
    Listing,
    WatchEvent,
)

Fault = Callable[[str, str], None]
"""Called with the method and the path before a call has an effect; it may raise."""


def _no_fault(method: str, path: str) -> None:
    return


class FakeApi(KubernetesApi):
    """Objects by path, with uids and resource versions."""

    def __init__(self) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.calls: list[tuple[str, str]] = []
        self.before: Fault = _no_fault
        self.after: Fault = _no_fault
        """Also called with both, when the call has had its effect: the answer is lost."""
        self.log: str | ApiError = "the log\n"
        """Of every pod, or why it cannot be read."""
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._events: list[tuple[int, str, WatchEvent]] = []

    def put(self, path: str, item: JsonObject) -> JsonObject:
        """Place an object as another client would."""
        with self._lock:
            item = copy.deepcopy(item)
            metadata = item.setdefault("metadata", {})
            metadata.setdefault("uid", f"uid-{next(self._numbers)}")
            metadata["resourceVersion"] = str(next(self._numbers))
            kind = "MODIFIED" if path in self.objects else "ADDED"
            self.objects[path] = item
            self._note(kind, path, item)
            return copy.deepcopy(item)

    def _note(self, kind: str, path: str, item: JsonObject) -> None:
        event = WatchEvent(kind, copy.deepcopy(item))
        self._events.append((next(self._numbers), path.rpartition("/")[0], event))
        self._changed.notify_all()

    def delete(self, path: str, grace_s: int | None = None) -> None:
        with self._lock:
            self._record_call("DELETE", path)
            item = self._get(path)
            del self.objects[path]
            self._note("DELETED", path, item)

    def text(self, path: str, query: Mapping[str, str]) -> str:
        self._record_call("GET", path)
        if isinstance(self.log, ApiError):
            raise self.log
        return self.log

    def list(self, path: str, selector: str) -> Listing:
        with self._lock:
            self._record_call("LIST", path)
            items = [o for p, o in self.objects.items() if p.rpartition("/")[0] == path]
            return Listing(copy.deepcopy(items), str(next(self._numbers)))

    def watch(self, path: str, selector: str, version: str, seconds: int) -> Iterator[WatchEvent]:
        last = int(version)
        while True:
            with self._lock:
                self._record_call("WATCH", path)
                new = [(n, e) for n, p, e in self._events if n > last and p == path]
                if not new:
                    self._changed.wait(0.1)
            for number, event in new:
                last = number
                yield event

    def get(self, path: str) -> JsonObject:
        with self._lock:
            self._record_call("GET", path)
            return copy.deepcopy(self._get(path))

    def create(self, path: str, item: JsonObject, *, dry_run: bool = False) -> JsonObject:
        with self._lock:
            place = f"{path}/{item['metadata']['name']}"
            self._record_call("POST", place)
            if place in self.objects:
                raise ApiError(409, "AlreadyExists", f"{place} already exists")
            made = self.put(place, item)
            self.after("POST", place)
            return made

    def replace(self, path: str, item: JsonObject) -> JsonObject:
        with self._lock:
            self._record_call("PUT", path)
            present = self._get(path)["metadata"]
            version = item["metadata"].get("resourceVersion")
            if version is not None and version != present["resourceVersion"]:
                raise ApiError(409, "Conflict", "the object has been modified")
            item = copy.deepcopy(item)
            item["metadata"]["uid"] = present["uid"]
            made = self.put(path, item)
            self.after("PUT", path)
            return made

    def patch(self, path: str, changes: JsonObject) -> JsonObject:
        with self._lock:
            self._record_call("PATCH", path)
            present = copy.deepcopy(self._get(path))
            uid = changes.get("metadata", {}).get("uid")
            if uid is not None and uid != present["metadata"]["uid"]:
                raise ApiError(409, "Conflict", "the uid in the precondition differs")
            _merge(present, changes)
            return self.put(path, present)

    def _record_call(self, method: str, path: str) -> None:
        self.calls.append((method, path))
        self.before(method, path)

    def _get(self, path: str) -> JsonObject:
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        return self.objects[path]


def outage(calls: int) -> Fault:
    """So many calls are not answered; then the server is back."""
    left = itertools.count(calls, -1)

    def fail(method: str, path: str) -> None:
        if next(left) > 0:
            raise ApiUnavailable("connection reset")

    return fail


def _merge(into: JsonObject, changes: JsonObject) -> None:
    for key, value in changes.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value
