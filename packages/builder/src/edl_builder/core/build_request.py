"""Build requests and their authorization: content, tenant, target and base image."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from edl_builder.core.archive import ARCHIVE_NBYTES, too_large
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.identifiers import Caller
from edl_builder.core.quota import Quota
from edl_builder.core.references import (
    Reference,
    check_labels,
    check_tag,
    matches,
    parse_reference,
    parse_repository,
)
from edl_builder.core.source_policy import AllowedSource, SourcePolicy, allow

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """An authenticated caller and its permissions.

    Attributes:
        name: as shown in logs.
        repositories: patterns of ``registry/path`` to which it may push.
        credentials: names of the server's git credentials that it may use.
        sees_all: whether it sees the builds of all.
        is_anonymous: whether it is any caller of an open service.
        quota: what it may use in a day.
        subject: who calls for the tenant, if an issuer of identity tokens says so.
    """

    name: Caller
    repositories: tuple[str, ...] = ("*",)
    credentials: tuple[str, ...] = ("*",)
    sees_all: bool = False
    is_anonymous: bool = False
    quota: Quota = field(default_factory=Quota)
    subject: str = ""

    @property
    def cache(self) -> str:
        """The name under which its layers are cached; empty for an open service."""
        return "" if self.is_anonymous else hashlib.sha256(self.name.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """Limits of all requests, of any tenant."""

    default_base: str = ""
    bases: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    sources: SourcePolicy = field(default_factory=SourcePolicy)
    archive_nbytes: int = ARCHIVE_NBYTES


@dataclass(frozen=True, slots=True)
class UncheckedRequest:
    """A request as received; nothing in it is trusted."""

    repository: str
    tag: str = ""
    base_image: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    archive_nbytes: int | None = None
    archive_sha256: str = ""
    git: tuple[str, str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """An authorized request.

    Attributes:
        cache: whose layers in the engine may be used again; empty: those of an open service.
        at_once: how many builds of this tenant the engine works on at a time; 0: as many as it can.
    """

    repository: Reference
    tag: str
    base: Reference
    labels: tuple[tuple[str, str], ...]
    git: AllowedSource | None
    archive_nbytes: int = 0
    archive_sha256: str = ""
    cache: str = ""
    at_once: int = 0


def authorize(asked: UncheckedRequest, tenant: Tenant, policy: RequestPolicy) -> BuildRequest:
    """Check a request and authorize it.

    Raises:
        BuilderError: the request is malformed, unsafe or not permitted to this tenant.
    """
    repository = parse_repository(asked.repository)
    if not matches(repository.registry, policy.registries):
        raise BuilderError(
            Reason.FORBIDDEN,
            f"this builder does not push to {repository.registry}",
            where="repository",
            remedy=f"Choose one of: {', '.join(policy.registries) or '(none is configured)'}.",
        )
    if not matches(repository.repository, tenant.repositories):
        raise BuilderError(
            Reason.FORBIDDEN,
            f"{tenant.name} may not push to {repository.repository}",
            where="repository",
            remedy=f"Choose one that matches: {', '.join(tenant.repositories) or '(none)'}.",
        )
    check_tag(asked.tag)
    labels = tuple(sorted(asked.labels.items()))
    check_labels(labels)
    base = _base(asked.base_image, policy)
    if asked.git is not None:
        source = allow(*asked.git, policy.sources)
        if source.credential and not matches(source.credential, tenant.credentials):
            raise BuilderError(
                Reason.FORBIDDEN,
                f"{tenant.name} may not use the credential {source.credential!r}",
                where="git credential",
                remedy="Ask the operator of the builder.",
            )
        return BuildRequest(
            repository,
            asked.tag,
            base,
            labels,
            source,
            cache=tenant.cache,
            at_once=tenant.quota.concurrent_builds,
        )
    if asked.archive_nbytes is None:
        raise BuilderError(
            Reason.INVALID,
            "the request names no source",
            where="source",
            remedy="Send an archive, or name a git repository.",
        )
    if asked.archive_nbytes > policy.archive_nbytes:
        raise too_large(policy.archive_nbytes, "archive")
    if asked.archive_sha256 and not _SHA256.fullmatch(asked.archive_sha256):
        raise BuilderError(
            Reason.INVALID, "sha256 is not 64 lower-case hexadecimal digits", where="archive"
        )
    return BuildRequest(
        repository,
        asked.tag,
        base,
        labels,
        None,
        asked.archive_nbytes,
        asked.archive_sha256,
        tenant.cache,
        tenant.quota.concurrent_builds,
    )


def _base(text: str, policy: RequestPolicy) -> Reference:
    if not text and not policy.default_base:
        raise BuilderError(
            Reason.INVALID,
            "the request names no base image, and this builder has no default",
            where="base image",
            remedy="Name a base image that has Python and the worker.",
        )
    base = parse_reference(text or policy.default_base, "base image")
    if text and text != policy.default_base and not matches(base.repository, policy.bases):
        raise BuilderError(
            Reason.FORBIDDEN,
            f"{base.repository} is not a base image that this builder uses",
            where="base image",
            remedy="Choose one that matches: "
            f"{', '.join((policy.default_base, *policy.bases)).strip(', ')}.",
        )
    return base
