"""The tenants with their tokens and certificates, read again when the file changes."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import threading
import time
import tomllib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edl_builder.adapters.identity_tokens import Subject
from edl_builder.config.values import check_section, flag, sections, texts, wrong_setting
from edl_builder.core.build_request import Tenant
from edl_builder.core.failure import BuilderError
from edl_builder.core.identifiers import Caller
from edl_builder.core.quota import Quota

log = logging.getLogger(__name__)

_POLL_S = 1.0
_SETTINGS = {
    *("token_sha256", "tokens", "certificates", "subjects"),
    *("repositories", "credentials", "sees_all", "quota"),
}


@dataclass(frozen=True, slots=True)
class Token:
    """The rights of a bearer token; ``expires`` is in seconds since 1970, None for never."""

    tenant: Tenant
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """The callers that are allowed.

    Attributes:
        tokens: SHA-256 of a bearer token, hex, to what it gives.
        certificates: common name or DNS name of a client certificate to tenant.
        subjects: whom an identity token is about to tenant; ``a:b:*`` stands for all that begin
            with ``a:b:``.
    """

    tokens: Mapping[str, Token] = field(default_factory=dict)
    certificates: Mapping[str, Tenant] = field(default_factory=dict)
    subjects: Mapping[Subject, Tenant] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """True if every caller that reaches the port is allowed."""
        return not self.tokens and not self.certificates and not self.subjects

    def tenant_of(self, subject: Subject) -> Tenant | None:
        """Return the tenant of a subject: by its whole name, or else by the longest prefix."""
        found = self.subjects.get(subject)
        rest = subject.subject
        while found is None and ":" in rest:
            rest = rest.rpartition(":")[0]
            found = self.subjects.get(Subject(subject.issuer, f"{rest}:*"))
        return found


def hash_token(token: str) -> str:
    """Return the hash that the settings hold in place of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_access(tenants: object, issuers: Container[str] = ()) -> Access:
    """Read the allowed callers from the section ``tenants`` of the settings file.

    Args:
        tenants: the section.
        issuers: names of the known issuers of identity tokens.

    Raises:
        BuilderError: a setting is wrong; says which.
    """
    tokens: dict[str, Token] = {}
    certificates: dict[str, Tenant] = {}
    subjects: dict[Subject, Tenant] = {}
    for name, each in check_section(tenants, None, "[tenants]").items():
        where = f"[tenants.{name}]"
        check_section(each, _SETTINGS, where)
        tenant = Tenant(
            Caller(name),
            texts(each, "repositories", where),
            texts(each, "credentials", where),
            flag(each, "sees_all", where),
            quota=_quota(each.get("quota", {}), where),
        )
        plain = [{"sha256": digest} for digest in texts(each, "token_sha256", where)]
        for token in (*plain, *sections(each, "tokens", where)):
            tokens[_digest(token, where)] = Token(tenant, _expiry(token.get("expires"), where))
        certificates |= dict.fromkeys(texts(each, "certificates", where), tenant)
        for found in sections(each, "subjects", where):
            subject = _subject(found, issuers, where)
            if subjects.setdefault(subject, tenant) != tenant:
                raise wrong_setting(where, f"{subject.subject} belongs to two tenants")
    return Access(tokens, certificates, subjects)


def _subject(found: Mapping[str, Any], issuers: Container[str], where: str) -> Subject:
    issuer, subject = found.get("issuer"), found.get("subject")
    if set(found) != {"issuer", "subject"} or str(issuer) not in issuers:
        raise wrong_setting(where, "a subject needs an issuer from [issuers], and a subject")
    if not isinstance(subject, str) or not re.fullmatch(r"[^*]+(:\*)?", subject):
        raise wrong_setting(where, "a subject is a whole name, or a prefix that ends in `:*`")
    return Subject(str(issuer), subject)


def _digest(token: Mapping[str, Any], where: str) -> str:
    found = str(token.get("sha256", ""))
    if set(token) - {"sha256", "expires"} or not re.fullmatch("[0-9a-f]{64}", found):
        raise wrong_setting(where, "give the token's SHA-256 (and expires), never the token itself")
    return found


def _expiry(value: object, where: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise wrong_setting(where, "expires is not a date and time, such as 2027-01-31T00:00:00Z")
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


def _quota(found: Mapping[str, Any], where: str) -> Quota:
    known = set(Quota.__slots__)
    check_section(found, None, f"{where} quota")
    for name, value in found.items():
        if name not in known or isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_setting(
                f"{where} quota", f"{name} is not a number for {', '.join(sorted(known))}"
            )
        if not 0 <= value < math.inf:
            raise wrong_setting(f"{where} quota", f"{name} is negative or infinite")
    return Quota(**found)


class AccessFile:
    """The tenants of a settings file, as the file is now: tokens change without a restart.

    Args:
        path: of the file.
        access: what was read from it at the start.
        clock: seconds, for how often the file is looked at.
        issuers: names of the known issuers of identity tokens, which do not change.
    """

    def __init__(
        self,
        path: Path,
        access: Access,
        clock: Callable[[], float] = time.monotonic,
        issuers: Container[str] = (),
    ) -> None:
        self._path = path
        self._access = access
        self._clock = clock
        self._issuers = issuers
        self._lock = threading.Lock()
        self._seen = _version(path)
        self._next = clock() + _POLL_S

    def __call__(self) -> Access:
        """Return the current callers. A damaged file, or one that admits all, changes nothing."""
        with self._lock:
            if self._clock() >= self._next:
                self._next = self._clock() + _POLL_S
                seen = _version(self._path)
                if seen != self._seen:
                    self._seen = seen
                    self._read()
            return self._access

    def _read(self) -> None:
        try:
            file = tomllib.loads(self._path.read_text("utf-8"))
            found = read_access(file.get("tenants", {}), self._issuers)
            if found.is_open:
                raise ValueError("the file has no tenants")
        except (OSError, ValueError, TypeError, AttributeError, BuilderError) as error:
            log.error("%s stays as it was read before: %s", self._path, error)
            return
        self._access = found
        log.info("%s: read again, %d tokens", self._path, len(found.tokens))


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
