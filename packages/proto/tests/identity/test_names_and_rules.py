"""What identities are called, and that every method of every port has a rule."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given
from hypothesis import strategies as st

import edl_proto.v1
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Identity, Role
from edl_proto.identity.rules import RULES, check
from edl_proto.transport.parameters import COORDINATOR, PARAMETERS, SHARD
from edl_proto.v1 import parameters_pb2, task_pb2

BUILDER = "edl.v1.Builder"
"""A service of its own, which identifies tenants by tokens."""

CALLERS = [
    Identity("w", Role.MASTER),
    Identity("w", Role.SERVER, 0),
    Identity("w", Role.SERVER, 1),
    Identity("w", Role.WORKER, 0),
    Identity("w", Role.WORKER, 1),
    Identity("w", Role.CLIENT),
    Identity("w", Role.VIEWER),
]


def descriptors() -> Iterator[ServiceDescriptor]:
    modules: list[Any] = [health_pb2, reflection_pb2]
    for found in pkgutil.iter_modules(edl_proto.v1.__path__):
        if found.name.endswith("_pb2"):
            modules.append(importlib.import_module(f"edl_proto.v1.{found.name}"))
    for module in modules:
        yield from module.DESCRIPTOR.services_by_name.values()


def methods() -> dict[str, Any]:
    """All methods that a port of a job may have, with a request of number 1 for each."""
    found: dict[str, Any] = {}
    for service in descriptors():
        if service.full_name == BUILDER:
            continue
        for method in service.methods:
            message = method.input_type._concrete_class()
            for field in ("worker_id", "server"):
                if field in method.input_type.fields_by_name:
                    setattr(message, field, 1)
            found[f"/{service.full_name}/{method.name}"] = message
    for raw in (PARAMETERS, SHARD, COORDINATOR):
        # All headers have the caller's number in the same place.
        header = parameters_pb2.PullHeader(worker_id=1).SerializeToString()
        found |= {raw.path(name): header for name in raw.methods}
        found[raw.path("Open")] = b""
    return found


def test_every_method_has_a_rule_and_every_rule_a_method() -> None:
    assert set(methods()) == set(RULES)


def test_who_may_call_what() -> None:
    """The whole table, seen from outside: each method with each caller."""

    def may(method: str, caller: Identity, request: Any) -> bool:
        try:
            check(method, caller, request)
        except EdlError as error:
            return error.code != ErrorCode.FORBIDDEN
        return True

    allowed: dict[str, set[str]] = {}
    for method, request in methods().items():
        allowed[method] = {c.name for c in CALLERS if may(method, c, request)}
    workers = {"worker-0", "worker-1"}
    log = {"Open": workers | {"server-0", "server-1"}, "Follow": {"server-1"}}
    worker, server, look, control = {"worker-1"}, {"server-1"}, {"client", "viewer"}, {"client"}
    for method, callers in allowed.items():
        service, name = method.split("/")[1:]
        match service.rpartition(".")[2]:
            case "Job":
                looks = ("GetStatus", "WatchEvents", "ReadTimeline")
                expected = look if name in looks else control
            case "Servers":
                expected = server
            case "Health":
                expected = look
            case "ServerReflection":
                expected = control
            case "Coordinator" if name in log:
                expected = log[name]
            case _:
                expected = workers if name == "Open" else worker
        assert callers == expected, method


def test_a_method_without_a_rule_is_refused() -> None:
    with pytest.raises(EdlError, match="client of job w may not call Burn"):
        check("/edl.v1.Job/Burn", Identity("w", Role.CLIENT), None)


def test_a_header_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(EdlError, match="header that cannot be read"):
        check("/edl.v1.Parameters/Push", Identity("w", Role.WORKER, 0), b"\xff")


def test_a_request_without_a_number_is_that_of_number_0() -> None:
    request = task_pb2.LeaseRequest()
    check("/edl.v1.Tasks/Lease", Identity("w", Role.WORKER, 0), request)
    with pytest.raises(EdlError, match="worker-1 of job w may not call Lease for number 0"):
        check("/edl.v1.Tasks/Lease", Identity("w", Role.WORKER, 1), request)


@given(st.text(min_size=1), st.sampled_from(Role), st.integers(0, 10**6))
def test_a_name_is_read_as_it_was_written(job: str, role: Role, number: int) -> None:
    try:
        job.encode()
    except UnicodeEncodeError:
        return
    identity = Identity(job, role, number if role.is_numbered else None)
    assert Identity.parse(identity.uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://job/w/worker/1",
        "edl://job/w",
        "edl://job/w/worker",
        "edl://job/w/worker/-1/",
        "edl://job/w/worker/01",
        "edl://job/w/worker/1/2",
        "edl://job/w/master/0",
        "edl://job/w/king",
        "edl://job/w/../master",
    ],
)
def test_what_is_no_name_is_refused(uri: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (of whatever words)
        Identity.parse(uri)
