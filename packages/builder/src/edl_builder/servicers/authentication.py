"""Authentication of calls: bearer and identity tokens, client certificates, or none at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, cast

import grpc

from edl_builder.adapters.identity_tokens import BadIdentityToken, IdentityTokens
from edl_builder.adapters.issuer_keys import KeysUnavailable
from edl_builder.config.access import Access, hash_token
from edl_builder.core.build_request import Tenant
from edl_builder.core.identifiers import Caller

_NAMES = ("x509_common_name", "x509_subject_alternative_name")
_BEARER = "bearer "


class Authenticator:
    """Finds the tenant of a call.

    Args:
        access: who may call now.
        identity_tokens: verifies tokens of issuers; None if there are none.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        access: Callable[[], Access],
        identity_tokens: IdentityTokens | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._access = access
        self._identity_tokens = identity_tokens
        self._clock = clock

    def authenticate(self, context: grpc.ServicerContext) -> Tenant:
        """Return the tenant of a call; abort the call as UNAUTHENTICATED if there is none."""
        access = self._access()
        for name, value in context.invocation_metadata() or ():
            if name == "authorization":
                tenant = self._of_token(access, value if isinstance(value, str) else "", context)
                if tenant is not None:
                    return tenant
        # gRPC gives a list of values for each name, whatever its stubs say.
        found = cast(Mapping[str, Sequence[bytes]], context.auth_context() or {})
        for kind in _NAMES:
            for shown in found.get(kind, ()):
                tenant = access.certificates.get(shown.decode("utf-8", "replace"))
                if tenant is not None:
                    return tenant
        if not access.is_open:
            _refuse(context, "the call has no bearer token and no known client certificate")
        # An open service has one caller per connection, and each caller sees all builds.
        return Tenant(Caller(context.peer()), sees_all=True, is_anonymous=True)

    def _of_token(self, access: Access, text: str, context: grpc.ServicerContext) -> Tenant | None:
        """Return the tenant of an authorization; None in an open service, without tokens."""
        if not text.lower().startswith(_BEARER):
            _refuse(context, "the authorization is not a bearer token")
        shown = text[len(_BEARER) :].strip()
        # Found by its hash: the time of the look-up reveals nothing about the token.
        token = access.tokens.get(hash_token(shown))
        if token is not None:
            if token.expires is not None and self._clock() >= token.expires:
                _refuse(context, "the bearer token has expired")
            return token.tenant
        if self._identity_tokens is not None and self._identity_tokens.has_jwt_format(shown):
            return _of_subject(access, self._identity_tokens, shown, context)
        if not access.is_open:
            _refuse(context, "the bearer token is not known")
        return None


def _of_subject(
    access: Access, tokens: IdentityTokens, shown: str, context: grpc.ServicerContext
) -> Tenant:
    try:
        subject = tokens.verify(shown)
    except BadIdentityToken as error:
        _refuse(context, str(error))
    except KeysUnavailable as error:
        context.abort(grpc.StatusCode.UNAVAILABLE, f"{error}; try again")
    tenant = access.tenant_of(subject)
    if tenant is None:
        _refuse(context, f"{subject.subject} of {subject.issuer} belongs to no tenant")
    return replace(tenant, subject=f"{subject.issuer} {subject.subject}")


def _refuse(context: grpc.ServicerContext, what: str) -> NoReturn:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{what}; send `authorization: Bearer TOKEN`")
    raise AssertionError("abort() raises")
