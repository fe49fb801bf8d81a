"""Authentication of calls: bearer tokens, client certificates, or none in an open service."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NoReturn, cast

import grpc

from edl_builder.config import Access
from edl_builder.core.build_request import Tenant
from edl_builder.core.names import Caller

_NAMES = ("x509_common_name", "x509_subject_alternative_name")
_BEARER = "bearer "


class Authenticator:
    """Finds the tenant of a call.

    Args:
        access: who may call.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    def authenticate(self, context: grpc.ServicerContext) -> Tenant:
        """The tenant of a call; aborts the call as UNAUTHENTICATED if there is none."""
        for name, value in context.invocation_metadata() or ():
            if name == "authorization":
                text = value if isinstance(value, str) else ""
                if not text.lower().startswith(_BEARER):
                    _refuse(context, "the authorization is not a bearer token")
                # Found by its hash: the time of the look-up reveals nothing about the token.
                digest = hashlib.sha256(text[len(_BEARER) :].strip().encode()).hexdigest()
                tenant = self._access.tokens.get(digest)
                if tenant is None and not self._access.is_open:
                    _refuse(context, "the bearer token is not known")
                if tenant is not None:
                    return tenant
        # gRPC gives a list of values for each name, whatever its stubs say.
        found = cast(Mapping[str, Sequence[bytes]], context.auth_context() or {})
        for kind in _NAMES:
            for shown in found.get(kind, ()):
                tenant = self._access.certificates.get(shown.decode("utf-8", "replace"))
                if tenant is not None:
                    return tenant
        if not self._access.is_open:
            _refuse(context, "the call has no bearer token and no known client certificate")
        # An open service has one caller per connection, and each caller sees all builds.
        return Tenant(Caller(context.peer()), sees_all=True, is_anonymous=True)


def _refuse(context: grpc.ServicerContext, what: str) -> NoReturn:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{what}; send `authorization: Bearer TOKEN`")
    raise AssertionError("abort() raises")
