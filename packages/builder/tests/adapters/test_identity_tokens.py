"""Identity tokens: the good ones, and every kind of bad one."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from certificates import make_ca, make_certificate
from cryptography.hazmat.primitives.asymmetric import rsa
from token_issuer import (
    AUDIENCE,
    EC,
    ISSUER,
    OTHER_RSA,
    RSA,
    SUBJECT,
    TokenIssuer,
    forge,
    issuing,
    jwk,
    pem,
    sign,
)

from edl_builder.adapters import issuer_keys
from edl_builder.adapters.identity_tokens import (
    BadIdentityToken,
    IdentityTokens,
    Issuer,
    Subject,
)
from edl_builder.adapters.issuer_keys import CachedIssuerKeys, KeySource, KeysUnavailable

HOUR, DAY = 3600.0, 86400.0
CLUSTER = Subject("cluster", SUBJECT)


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with issuing() as found:
        yield found


@pytest.fixture
def tokens(issuer: TokenIssuer, clock: Seconds) -> IdentityTokens:
    return _tokens(KeySource(issuer.url), clock)


def _tokens(source: KeySource, clock: Seconds, *algorithms: str) -> IdentityTokens:
    found = Issuer("cluster", ISSUER, AUDIENCE, source)
    if algorithms:
        found = replace(found, algorithms=algorithms)
    return IdentityTokens((found,), lambda keys: CachedIssuerKeys(keys, clock))


def test_whom_a_token_is_about(tokens: IdentityTokens, issuer: TokenIssuer) -> None:
    assert tokens.verify(sign()) == CLUSTER
    assert tokens.verify(sign(EC, "two", "ES256")) == CLUSTER
    assert tokens.verify(sign(aud=AUDIENCE)) == CLUSTER
    assert tokens.verify(sign(nbf=None, iat=None)) == CLUSTER
    # Clocks may be a minute apart.
    assert tokens.verify(sign(exp=time.time() - 30, nbf=time.time() + 30)) == CLUSTER
    assert len(issuer.asked) == 1


SAME_BUT = {
    "expired": (lambda: sign(exp=time.time() - 120), "has expired"),
    "without an end": (lambda: sign(exp=None), "no claim 'exp'"),
    "an end that is no number": (lambda: sign(exp="never"), "not signed"),
    "not valid yet": (lambda: sign(nbf=time.time() + 120), "not valid yet"),
    "issued in the future": (lambda: sign(iat=time.time() + 120), "not valid yet"),
    "for another audience": (lambda: sign(aud="https://kubernetes"), "not for the audience"),
    "for a part of the audience": (lambda: sign(aud="edl"), "not for the audience"),
    "for any audience": (lambda: sign(aud=None), "no claim 'aud'"),
    "of another issuer": (lambda: sign(iss="https://evil.example"), "issuer .* not known"),
    "of an issuer that begins alike": (lambda: sign(iss=ISSUER + "/"), "issuer .* not known"),
    "of no issuer": (lambda: sign(iss=None), "issuer .* not known"),
    "of a list of issuers": (lambda: sign(iss=[ISSUER]), "(issuer .* not known|cannot be read)"),
    "without a subject": (lambda: sign(sub=None), "no claim 'sub'"),
    "about the empty name": (lambda: sign(sub=""), "names no subject"),
    "of another key": (lambda: sign(OTHER_RSA), "not signed by its issuer"),
    "of a key of another kind": (lambda: sign(RSA, "two"), "another algorithm"),
    "of an unknown key": (lambda: sign(kid="three"), "no key of the id"),
    "without a key id": (lambda: sign(kid=None), "which key"),
    "with an empty key id": (lambda: sign(kid=""), "which key"),
    "with another algorithm of the key": (lambda: sign(algorithm="RS512"), "not signed with"),
    "not signed": (lambda: forge({"alg": "none", "kid": "one"}), "not signed with"),
    "not signed, in other letters": (lambda: forge({"alg": "nOnE", "kid": "one"}), "not signed"),
    "signed with the public key as a secret": (
        lambda: forge({"alg": "HS256", "kid": "one"}, pem()),
        "not signed with",
    ),
    "signature cut off": (lambda: sign().rpartition(".")[0] + ".", "not signed by its issuer"),
    "body of another token": (
        lambda: ".".join((*sign(sub="evil").split(".")[:2], sign().rpartition(".")[2])),
        "not signed by its issuer",
    ),
    "key in its own header": (
        lambda: forge({"alg": "RS256", "kid": "x", "jwk": jwk(OTHER_RSA, "x")}),
        "no key of the id",
    ),
    "key elsewhere": (
        lambda: forge({"alg": "RS256", "kid": "x", "jku": "http://evil.example"}),
        "no key of the id",
    ),
    "unknown extensions": (
        lambda: forge({"alg": "RS256", "kid": "one", "crit": ["x"], "x": 1}),
        "(extensions|cannot be read)",
    ),
    "an algorithm that is a list": (
        lambda: forge({"alg": ["RS256"], "kid": "one"}),
        "(not signed with|cannot be read)",
    ),
    "no token": (lambda: "a.b.c", "cannot be read"),
    "empty parts": (lambda: "..", "cannot be read"),
    "no object": (lambda: "MQ.MQ.MQ", "cannot be read"),
    "deep": (lambda: "." + "W" * 9000 + ".", "cannot be read"),
}


@pytest.mark.parametrize("kind", SAME_BUT)
def test_a_bad_token_is_refused(tokens: IdentityTokens, kind: str) -> None:
    make, why = SAME_BUT[kind]
    assert tokens.verify(sign()) == CLUSTER
    token = make()
    with pytest.raises(BadIdentityToken, match=why) as refused:
        tokens.verify(token)
    assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "token"),
    [
        # A shared secret among the keys: each reader of the set could sign.
        ({"kty": "oct", "kid": "k", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}, "HS256"),
        (jwk(OTHER_RSA, "k", use="enc"), "RS256"),
        (jwk(OTHER_RSA, "k", alg="none"), "RS256"),
        (jwk(OTHER_RSA, "k", alg="HS256"), "RS256"),
        ({**jwk(OTHER_RSA, "k"), "n": "AQAB"}, "RS256"),
        ({**jwk(OTHER_RSA, "k"), "kid": 7}, "RS256"),
        ("no key", "RS256"),
    ],
)
def test_keys_that_are_none_are_left_out(
    tokens: IdentityTokens, issuer: TokenIssuer, key: dict[str, object], token: str
) -> None:
    issuer.keys.insert(0, key)
    assert tokens.verify(sign()) == CLUSTER
    secret = b"secretsecretsecretsecretsecret"
    shown = (
        forge({"alg": "HS256", "kid": "k"}, secret) if token == "HS256" else sign(OTHER_RSA, "k")
    )
    with pytest.raises(BadIdentityToken):
        tokens.verify(shown)


def test_a_short_key_of_rsa_is_left_out(tokens: IdentityTokens, issuer: TokenIssuer) -> None:
    short = rsa.generate_private_key(65537, 1024)
    issuer.keys.append(jwk(short, "short"))
    with pytest.raises(BadIdentityToken, match="no key of the id"):
        tokens.verify(sign(short, "short"))


def test_algorithms_are_those_of_the_settings(issuer: TokenIssuer, clock: Seconds) -> None:
    tokens = _tokens(KeySource(issuer.url), clock, "ES256")
    assert tokens.verify(sign(EC, "two", "ES256")) == CLUSTER
    with pytest.raises(BadIdentityToken, match="not signed with ES256"):
        tokens.verify(sign())


def test_a_new_key_is_fetched_when_a_token_names_it(
    tokens: IdentityTokens, issuer: TokenIssuer, clock: Seconds
) -> None:
    tokens.verify(sign())
    issuer.keys = [jwk(OTHER_RSA, "three")]
    clock.now += 31
    assert tokens.verify(sign(OTHER_RSA, "three")) == CLUSTER
    with pytest.raises(BadIdentityToken):
        tokens.verify(sign())
    assert len(issuer.asked) == 2


def test_unknown_keys_do_not_make_the_builder_ask_without_end(
    tokens: IdentityTokens, issuer: TokenIssuer, clock: Seconds
) -> None:
    for number in range(50):
        with pytest.raises(BadIdentityToken):
            tokens.verify(sign(kid=f"made-up-{number}"))
    assert len(issuer.asked) == 1
    clock.now += 31
    with pytest.raises(BadIdentityToken):
        tokens.verify(sign(kid="made-up"))
    assert len(issuer.asked) == 2


def test_a_key_that_the_issuer_withdraws_ends(
    tokens: IdentityTokens, issuer: TokenIssuer, clock: Seconds
) -> None:
    tokens.verify(sign())
    issuer.keys = [jwk(EC, "two")]
    clock.now += HOUR / 2
    tokens.verify(sign())
    clock.now += HOUR
    with pytest.raises(BadIdentityToken, match="no key of the id"):
        tokens.verify(sign())


@pytest.mark.parametrize(
    "answer", [b"{", b"[]", b'{"keys": {}}', b'{"keys": []}', b"{}", b"7" * 2**21, b"[" * 100_000]
)
def test_an_issuer_that_fails_is_believed_for_a_day(
    tokens: IdentityTokens, issuer: TokenIssuer, clock: Seconds, answer: bytes
) -> None:
    tokens.verify(sign())
    issuer.answer = answer
    clock.now = DAY - 1
    assert tokens.verify(sign()) == CLUSTER
    clock.now = DAY + 1
    with pytest.raises(KeysUnavailable):
        tokens.verify(sign())
    issuer.answer = None
    clock.now += 31
    assert tokens.verify(sign()) == CLUSTER


@pytest.mark.parametrize("status", [301, 302, 307, 401, 404, 500])
def test_an_answer_that_is_no_success_has_no_keys(
    tokens: IdentityTokens, issuer: TokenIssuer, status: int
) -> None:
    issuer.status = status
    with pytest.raises(KeysUnavailable):
        tokens.verify(sign())
    assert len(issuer.asked) == 1  # and no redirect was followed


def test_an_issuer_that_hangs_keeps_one_call_waiting_and_no_more(
    tokens: IdentityTokens, issuer: TokenIssuer, clock: Seconds
) -> None:
    tokens.verify(sign())
    issuer.hold.clear()
    clock.now += 31
    found: list[object] = []

    def verify() -> None:
        try:
            found.append(tokens.verify(sign(OTHER_RSA, "three")))
        except (BadIdentityToken, KeysUnavailable) as error:
            found.append(error)

    first = threading.Thread(target=verify)
    first.start()
    while len(issuer.asked) < 2:
        time.sleep(0.01)
    with pytest.raises(KeysUnavailable, match="being fetched"):
        tokens.verify(sign(kid="made-up"))
    assert tokens.verify(sign()) == CLUSTER
    issuer.keys.append(jwk(OTHER_RSA, "three"))
    issuer.hold.set()
    first.join()
    # Unless the machine was so slow that the fetch has timed out.
    assert found == [CLUSTER] or isinstance(found[0], BadIdentityToken)


def test_an_issuer_is_believed_for_its_certificate(tmp_path: Path, clock: Seconds) -> None:
    ca = make_ca(tmp_path / "ca")
    with issuing(make_certificate(ca, tmp_path, "issuer")) as issuer:
        trusting = _tokens(KeySource(issuer.url, ca_file=str(ca.certificate)), clock)
        assert trusting.verify(sign()) == CLUSTER
        for other in ("", str(make_ca(tmp_path / "other").certificate), "/no/file"):
            with pytest.raises(KeysUnavailable):
                _tokens(KeySource(issuer.url, ca_file=other), clock).verify(sign())
        assert len(issuer.asked) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("begin", [b"X-", b"Content-Length: 90000\r\n\r\n", b"\r\n"])
def test_an_issuer_that_answers_without_end_is_not_waited_for(
    clock: Seconds, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    """It sends a byte before each timeout: of a header, or of the content."""
    monkeypatch.setattr(issuer_keys, "_DEADLINE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + begin)
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.01)

        thread = threading.Thread(target=answer)
        thread.start()
        tokens = _tokens(KeySource(f"http://127.0.0.1:{server.getsockname()[1]}/"), clock)
        with pytest.raises(KeysUnavailable):
            tokens.verify(sign())
        thread.join()


def test_keys_of_a_file_change_with_it(tmp_path: Path, clock: Seconds) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [jwk(RSA, "one")]}))
    tokens = _tokens(KeySource(file=path), clock)
    assert tokens.verify(sign()) == CLUSTER
    path.write_text(json.dumps({"keys": [jwk(OTHER_RSA, "three")]}))
    clock.now += 31
    assert tokens.verify(sign(OTHER_RSA, "three")) == CLUSTER


def test_the_issuer_is_shown_the_token_as_its_file_is_now(
    tmp_path: Path, issuer: TokenIssuer, clock: Seconds
) -> None:
    """Kubernetes asks for a token, and replaces it every hour."""
    path = tmp_path / "token"
    tokens = _tokens(KeySource(issuer.url, bearer_token_file=str(path)), clock)
    for shown in ("first", "second"):
        path.write_text(shown + "\n")
        clock.now += 2 * HOUR
        tokens.verify(sign())
    assert issuer.asked == ["Bearer first", "Bearer second"]


def test_keys_are_fetched_ahead_of_need(tokens: IdentityTokens, issuer: TokenIssuer) -> None:
    tokens.fetch_keys()
    assert len(issuer.asked) == 1
    tokens.verify(sign())
    assert len(issuer.asked) == 1


def test_what_looks_like_an_identity_token(tokens: IdentityTokens) -> None:
    assert tokens.has_jwt_format(sign())
    assert not tokens.has_jwt_format("0123456789abcdef")
    assert not IdentityTokens(()).has_jwt_format(sign())
