"""Callers with identity tokens of an issuer, over real gRPC and real HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import zoos
from service_bench import DEADLINE_S, ZOO, Bench, build, serving, settings, until
from token_issuer import AUDIENCE, ISSUER, OTHER_RSA, SUBJECT, TokenIssuer, issuing, jwk, sign

from edl_builder.adapters.identity_tokens import Issuer, Subject
from edl_builder.adapters.issuer_keys import KeySource
from edl_builder.config import builder_config
from edl_builder.config.access import Access, Token, hash_token, read_access
from edl_builder.core.failure import BuilderError
from edl_proto.v1 import builder_pb2 as pb

STATUS = grpc.StatusCode
STRANGER = "system:serviceaccount:team-z:training"


def _access() -> Access:
    return read_access(
        {
            "team-a": {
                "subjects": [{"issuer": "cluster", "subject": SUBJECT}],
                "repositories": ["registry.test/team-a/*"],
                "token_sha256": [hash_token("plain")],
            },
            "rest-of-a": {
                "subjects": [{"issuer": "cluster", "subject": "system:serviceaccount:team-a:*"}],
                "repositories": ["registry.test/rest/*"],
            },
        },
        {"cluster"},
    )


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with issuing() as found:
        yield found


@pytest.fixture
def bench(tmp_path: Path, issuer: TokenIssuer) -> Iterator[Bench]:
    cluster = Issuer("cluster", ISSUER, AUDIENCE, KeySource(issuer.url))
    with serving(
        replace(settings(tmp_path / "state"), access=_access(), issuers=(cluster,))
    ) as found:
        yield found


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def list_and_return_error(bench: Bench, token: str) -> grpc.RpcError:
    with bench.stub() as stub, pytest.raises(grpc.RpcError) as refused:
        stub.List(pb.ListBuildsRequest(), metadata=_bearer(token), timeout=DEADLINE_S)
    return refused.value


def test_a_service_account_builds_what_its_tenant_may_and_is_recorded(bench: Bench) -> None:
    archive = zoos.tar(ZOO)
    with bench.stub() as stub:
        assert build(stub, archive, _bearer(sign())).status is STATUS.OK
        other = sign(sub="system:serviceaccount:team-a:other")
        assert build(stub, archive, _bearer(other)).status is STATUS.PERMISSION_DENIED
        rest = build(stub, archive, _bearer(other), repository="registry.test/rest/x")
        assert rest.status is STATUS.OK
        # The other way in stays open.
        assert len(stub.List(pb.ListBuildsRequest(), metadata=_bearer("plain")).builds) == 1
    path = bench.config.state_dir / "audit.jsonl"
    until(lambda: len(path.read_text().splitlines()) == 3)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["tenant"], each["subject"], each["status"]) for each in found] == [
        ("team-a", f"cluster {SUBJECT}", "OK"),
        ("rest-of-a", "cluster system:serviceaccount:team-a:other", "PERMISSION_DENIED"),
        ("rest-of-a", "cluster system:serviceaccount:team-a:other", "OK"),
    ]


def test_bad_tokens_are_refused(bench: Bench, issuer: TokenIssuer) -> None:
    for token, why in (
        (sign(exp=time.time() - 120), "expired"),
        (sign(OTHER_RSA), "not signed by its issuer"),
        (sign(sub=STRANGER), "belongs to no tenant"),
        (sign(sub="system:serviceaccount:team-ab:training"), "belongs to no tenant"),
        (sign(sub="system:serviceaccount:team-a"), "belongs to no tenant"),
        ("a.b.c", "cannot be read"),
        ("other", "not known"),
    ):
        refused = list_and_return_error(bench, token)
        assert refused.code() is STATUS.UNAUTHENTICATED
        assert why in (refused.details() or "")
        assert token not in (refused.details() or "")


def test_the_issuer_has_new_keys(bench: Bench, issuer: TokenIssuer, tmp_path: Path) -> None:
    """A service that has just started has no keys to fall back on, and says so."""
    issuer.keys = [jwk(OTHER_RSA, "three")]
    issuer.status = 500
    config = replace(bench.config, state_dir=tmp_path / "other")
    with serving(config) as other:
        assert list_and_return_error(other, sign(OTHER_RSA, "three")).code() is STATUS.UNAVAILABLE
        with other.stub() as stub:
            stub.List(pb.ListBuildsRequest(), metadata=_bearer("plain"), timeout=DEADLINE_S)
    issuer.status = 200
    with serving(config) as other, other.stub() as stub:
        token = sign(OTHER_RSA, "three")
        stub.List(pb.ListBuildsRequest(), metadata=_bearer(token), timeout=DEADLINE_S)


SETTINGS = """
[issuers.cluster]
issuer = "https://kubernetes.default.svc.cluster.local"
audience = "edl-builder"
jwks_url = "https://kubernetes.default.svc/openid/v1/jwks"

[tenants.team-a]
subjects = [{ issuer = "cluster", subject = "system:serviceaccount:team-a:training" }]
"""


def _read(tmp_path: Path, text: str) -> builder_config.Config:
    path = tmp_path / "builder.toml"
    path.write_text(text)
    return builder_config.read(["--state-dir", str(tmp_path / "s"), "--config", str(path)])


def test_the_settings_of_an_issuer(tmp_path: Path) -> None:
    found = _read(tmp_path, SETTINGS)
    keys = KeySource("https://kubernetes.default.svc/openid/v1/jwks")
    assert found.issuers == (Issuer("cluster", ISSUER, AUDIENCE, keys),)
    assert [each.name for each in found.access.subjects.values()] == ["team-a"]
    assert not found.access.is_open


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('audience = "edl-builder"', "", "audience is missing"),
        ("edl-builder", "", "audience is not a text"),
        ("https://kubernetes.default.svc/", "http://kubernetes.default.svc/", "not an https URL"),
        ("https://kubernetes.default.svc/", "https://me:pw@k8s/", "not an https URL"),
        ("https://kubernetes.default.svc/", "file:///", "not an https URL"),
        ("jwks_url =", "jwks =", "no setting 'jwks'"),
        ("jwks_url =", "ca_file =", "either jwks_url or jwks_file"),
        ("jwks_url =", 'jwks_file = "/dev/null"\njwks_url =', "either jwks_url or jwks_file"),
        ("jwks_url =", 'ca_file = "/no/file"\njwks_url =', "there is no file /no/file"),
        ("jwks_url =", 'algorithms = ["HS256"]\njwks_url =', "algorithms must be some of"),
        ("jwks_url =", 'algorithms = ["none"]\njwks_url =', "algorithms must be some of"),
        ("jwks_url =", "algorithms = []\njwks_url =", "algorithms must be some of"),
        ('issuer = "cluster"', 'issuer = "clusters"', "needs an issuer from"),
        ("system:serviceaccount:team-a:training", "*", "a whole name"),
        ("team-a:training", "team-*", "a whole name"),
        ("team-a:training", "*:training", "a whole name"),
        ("[tenants.team-a]", "[tenants.team-b]\nsubjects = [{ issuer = \"cluster\", subject = "
         '"system:serviceaccount:team-a:training" }]\n[tenants.team-a]', "belongs to two tenants"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(tmp_path: Path, old: str, new: str, what: str) -> None:
    assert old in SETTINGS
    with pytest.raises(BuilderError, match=what):
        _read(tmp_path, SETTINGS.replace(old, new, 1))


def test_the_longest_beginning_counts() -> None:
    def tenant_of(subject: str) -> dict[str, object]:
        return {"subjects": [{"issuer": "cluster", "subject": subject}]}

    tenants = {"all": tenant_of("a:*"), "some": tenant_of("a:b:*"), "one": tenant_of("a:b:c")}
    access = read_access(tenants, {"cluster"})

    def tenant_of(subject: str, issuer: str = "cluster") -> str:
        found = access.tenant_of(Subject(issuer, subject))
        return found.name if found else ""

    assert [tenant_of(each) for each in ("a:b:c", "a:b:d", "a:b:c:d", "a:c", "a", "b:c")] == [
        *("one", "some", "some", "all", "", "")
    ]
    assert tenant_of("a:b:c", "other") == ""


def test_subjects_change_without_a_restart(tmp_path: Path, issuer: TokenIssuer) -> None:
    found = _read(tmp_path, SETTINGS)
    path = tmp_path / "builder.toml"
    cluster = replace(found.issuers[0], keys=KeySource(issuer.url))
    run = replace(settings(tmp_path / "state"), access=found.access, access_file=path)
    with serving(replace(run, issuers=(cluster,))) as bench, bench.stub() as stub:
        assert list_and_return_error(bench, sign(sub=STRANGER)).code() is STATUS.UNAUTHENTICATED
        path.write_text(SETTINGS.replace("team-a:training", "team-z:training") + "\n# changed")

        def is_known() -> bool:
            try:
                stub.List(pb.ListBuildsRequest(), metadata=_bearer(sign(sub=STRANGER)))
            except grpc.RpcError:
                return False
            return True

        until(is_known)
        assert list_and_return_error(bench, sign()).code() is STATUS.UNAUTHENTICATED


def test_a_token_of_the_settings_may_have_dots(tmp_path: Path, issuer: TokenIssuer) -> None:
    tenant = read_access({"ann": {"token_sha256": [hash_token("a.b.c")]}})
    assert isinstance(tenant.tokens[hash_token("a.b.c")], Token)
    cluster = Issuer("cluster", ISSUER, AUDIENCE, KeySource(issuer.url))
    run = replace(settings(tmp_path / "state"), access=tenant, issuers=(cluster,))
    with serving(run) as bench, bench.stub() as stub:
        stub.List(pb.ListBuildsRequest(), metadata=_bearer("a.b.c"), timeout=DEADLINE_S)
