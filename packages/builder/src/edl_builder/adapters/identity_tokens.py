"""Identity tokens (OpenID Connect), such as those of Kubernetes service accounts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jwt

from edl_builder.adapters.issuer_keys import (
    CachedIssuerKeys,
    IssuerKeys,
    KeySource,
    KeysUnavailable,
)

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""All that settings may name: signatures of public keys. Never ``none``, never HS*."""

DEFAULT_ALGORITHMS = ("RS256", "ES256")
"""Those of Kubernetes."""

_LEEWAY_S = 60.0
"""How far the clocks of issuer and builder may be apart."""

_PARTS = 3
_REQUIRED = ["iss", "sub", "aud", "exp"]


class BadIdentityToken(Exception):
    """The token proves nothing; the text says why, without the token."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """A provider that signs identity tokens.

    Attributes:
        name: in the settings.
        issuer: claim ``iss`` of its tokens, exactly.
        audience: one value of claim ``aud``; tokens for others are refused.
        keys: where its public keys are.
        algorithms: of ``ALGORITHMS``; tokens signed otherwise are refused.
    """

    name: str
    issuer: str
    audience: str
    keys: KeySource
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an identity token, which is unique for its issuer.

    Attributes:
        issuer: name of the issuer in the settings.
        subject: claim ``sub``.
    """

    issuer: str
    subject: str


class IdentityTokens:
    """Verifies identity tokens of some issuers.

    Args:
        issuers: whose tokens count; no two have the same ``iss``.
        keys_of: finds the keys of an issuer.
    """

    def __init__(
        self,
        issuers: tuple[Issuer, ...],
        keys_of: Callable[[KeySource], IssuerKeys] = CachedIssuerKeys,
    ) -> None:
        self._issuers: Mapping[str, tuple[Issuer, IssuerKeys]] = {
            issuer.issuer: (issuer, keys_of(issuer.keys)) for issuer in issuers
        }

    def fetch_keys(self) -> None:
        """Fetch all keys in advance. An issuer that does not answer is asked again later."""
        for _, keys in self._issuers.values():
            with contextlib.suppress(KeysUnavailable):
                keys.find("")

    def has_jwt_format(self, token: str) -> bool:
        """Tell whether a bearer token may be an identity token, and there are issuers."""
        return bool(self._issuers) and len(token.split(".")) == _PARTS

    def verify(self, token: str) -> Subject:
        """Return the subject of a token.

        Raises:
            BadIdentityToken: it is none, has expired, is for another audience, is of an unknown
                issuer, or is not signed by it.
            KeysUnavailable: the issuer cannot be asked for its keys.
        """
        try:
            header = jwt.get_unverified_header(token)
            # Believed only for the choice of the key, which then proves it.
            claimed = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise BadIdentityToken("the identity token cannot be read") from None
        issuer, keys = self._issuers.get(claimed if isinstance(claimed, str) else "", (None, None))
        if issuer is None or keys is None:
            raise BadIdentityToken("the issuer of the identity token is not known")
        if header.get("alg") not in issuer.algorithms:
            raise BadIdentityToken(
                f"the identity token is not signed with {' or '.join(issuer.algorithms)}"
            )
        if "crit" in header:
            raise BadIdentityToken("the identity token has extensions that are not known")
        key_id = header.get("kid")
        if not isinstance(key_id, str) or not key_id:
            raise BadIdentityToken("the identity token does not say which key has signed it")
        key = keys.find(key_id)
        if key is None:
            raise BadIdentityToken("the issuer has no key of the id that the identity token names")
        # A key is for one algorithm (RS256, if an RSA key names none), whatever a header says.
        if key.algorithm_name != header["alg"]:
            raise BadIdentityToken("the key of the identity token is for another algorithm")
        return Subject(issuer.name, _verify_with(token, key, issuer))


def _verify_with(token: str, key: jwt.PyJWK, issuer: Issuer) -> str:
    """The subject of a token of this key. Raises: BadIdentityToken."""
    try:
        claims = jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm_name],
            audience=issuer.audience,
            issuer=issuer.issuer,
            leeway=_LEEWAY_S,
            options={"require": _REQUIRED},
        )
    except jwt.ExpiredSignatureError:
        what = "the identity token has expired"
    except (jwt.ImmatureSignatureError, jwt.InvalidIssuedAtError):
        what = "the identity token is not valid yet"
    except jwt.InvalidAudienceError:
        what = f"the identity token is not for the audience {issuer.audience!r}"
    except jwt.MissingRequiredClaimError as error:
        what = f"the identity token has no claim {error.claim!r}"
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        what = "the identity token is not signed by its issuer"
    else:
        subject = claims["sub"]
        if isinstance(subject, str) and subject:
            return subject
        what = "the identity token names no subject"
    raise BadIdentityToken(what)
