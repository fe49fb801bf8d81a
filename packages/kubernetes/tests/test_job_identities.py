"""The identities of jobs on Kubernetes: what is signed, by whom, and for whom."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from edl.core.options.kubernetes import ClusterChoice
from edl_kubernetes.chosen_cluster import ChosenCluster, ClusterConnection
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError
from edl_kubernetes.core import identities
from edl_kubernetes.job_identities import ClientIdentity, JobIdentities, NewIdentities
from edl_kubernetes.job_objects import JobObjects
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_runtime.identity.folder import IdentityFolder

SECRETS = "/api/v1/namespaces/team/secrets"


def authority_of(new: NewIdentities) -> bytes:
    return new.content(identities.authority_secret("digits"))[objects.AUTHORITY_KEY].encode()


def uri_of(pem: str) -> str:
    certificate = x509.load_pem_x509_certificate(pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    return uri


class Api:
    """The API of a cluster with the one job ``digits``, in the namespace ``team``."""

    def __init__(self, authority: bytes = b"") -> None:
        own = {"name": "edl-digits", "uid": "1", "labels": objects.labels("digits", "master")}
        self.objects: dict[str, Any] = {"/apis/batch/v1/namespaces/team/jobs/edl-digits": {}}
        self.objects["/apis/batch/v1/namespaces/team/jobs/edl-digits"]["metadata"] = own
        if authority:
            text = base64.b64encode(authority).decode()
            secret = {"data": {objects.AUTHORITY_KEY: text}}
            self.objects[f"{SECRETS}/edl-digits.authority"] = secret
        self.read: list[str] = []
        self.forbidden = ""

    def get(self, path: str) -> dict[str, Any]:
        self.read.append(path)
        if path == self.forbidden:
            raise ApiError(403, "Forbidden", "secrets is forbidden")
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        found: dict[str, Any] = self.objects[path]
        return found

    def create(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        path = f"{path}/{item['metadata']['name']}"
        if path in self.objects:
            raise ApiError(409, "AlreadyExists", path)
        self.objects[path] = item
        return item

    def jobs(self) -> JobIdentities:
        cluster = ChosenCluster(ClusterChoice())
        connection = ClusterConnection(self, "here", "team")
        cluster._connection = connection
        return JobIdentities(cluster, JobObjects(cluster))


@pytest.fixture
def new() -> NewIdentities:
    return NewIdentities("digits")


@pytest.fixture
def master(new: NewIdentities, tmp_path: Path) -> Iterator[str]:
    """The address of a master of the job, which answers whether it is healthy."""
    own = IdentityFolder(tmp_path / "identity", "digits")
    own.install(authority_of(new))
    access_control = AccessControl(Credentials(own.provide(Role.MASTER)))
    server = grpc.server(futures.ThreadPoolExecutor(2), interceptors=[access_control.interceptor])
    servicer = health.HealthServicer()
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = channels.add_port(server, "127.0.0.1:0", access_control)
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0)


def check_health(address: str, identity: ClientIdentity) -> None:
    with channels.connect(address, identity.master) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        stub.Check(health_pb2.HealthCheckRequest(), timeout=200)


def test_each_key_of_a_secret_is_one_identity(new: NewIdentities) -> None:
    (block,) = identities.blocks("digits", objects.SERVER, 2)
    content = new.content(block)
    assert [uri_of(content[f"{number}.pem"]) for number in (0, 63)] == [
        "edl://job/digits/server/0",
        "edl://job/digits/server/63",
    ]
    certificates = [pem.split("-----BEGIN CERTIFICATE-----") for pem in content.values()]
    assert len({keys for keys, *_ in certificates}) == 64, "no key is shared"
    assert len({authority for *_, authority in certificates}) == 1


def test_the_client_is_let_in_through_any_address_and_leaves_no_key(
    new: NewIdentities, master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    own = Api(authority_of(new)).jobs().client("team/digits")
    assert own is not None
    check_health(master, own)
    own.close()
    assert list(private.iterdir()) == []
    other = ClientIdentity("digits", authority_of(NewIdentities("digits")))
    with pytest.raises(grpc.RpcError) as refused:  # the authority of a former job of this name
        check_health(master, other)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    other.close()


def test_a_job_of_an_earlier_version_has_no_identities() -> None:
    api = Api()
    assert api.jobs().client("digits") is None
    api.jobs().add_workers("digits", 1000)
    assert len(api.objects) == 1


def test_who_may_not_read_the_authority_is_told_so(new: NewIdentities) -> None:
    api = Api(authority_of(new))
    api.forbidden = f"{SECRETS}/edl-digits.authority"
    with pytest.raises(EdlError) as caught:
        api.jobs().client("digits")
    assert caught.value.code == ErrorCode.FORBIDDEN
    assert "reading the job's authority" in caught.value.what


def test_workers_beyond_the_first_block_get_identities_of_the_same_authority(
    new: NewIdentities,
) -> None:
    api = Api(authority_of(new))
    jobs = api.jobs()
    jobs.add_workers("digits", 64)
    assert api.read == [], "the job began with these"
    before = set(api.objects)
    for _ in range(2):  # what exists stays
        jobs.add_workers("team/digits", 129)
        added = [path for path in api.objects if path not in before]
        names = ["edl-digits.workers-1", "edl-digits.workers-2"]
        assert added == [f"{SECRETS}/{name}" for name in names]
    first, second = (api.objects[path] for path in added)
    assert next(iter(second["stringData"])) == "128.pem"
    pem = first["stringData"]["64.pem"]
    assert uri_of(pem) == "edl://job/digits/worker/64"
    assert pem.encode().endswith(x509_of(authority_of(new)))
    assert first["metadata"]["ownerReferences"][0]["uid"] == "1"
    assert first["metadata"]["labels"] == objects.labels("digits", objects.WORKER)


def x509_of(authority: bytes) -> bytes:
    """The certificate after the key."""
    return authority[authority.index(b"-----BEGIN CERTIFICATE-----") :]
