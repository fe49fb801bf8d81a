"""The policy for git repositories: hosts, paths, credentials and addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.references import matches
from edl_runtime.model.git_source import GitSource, GitSourceError, GitUrl, make_source, parse_url

_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    r"(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
)
_NUMBERS = re.compile(r"(?:0x[0-9a-f]+|[0-9]+)(?:\.(?:0x[0-9a-f]+|[0-9]+))*")
_PRIVATE_DOMAINS = frozenset(
    {"localhost", "localdomain", "localdomain6", "local", "internal", "svc"}
)
"""Names in these lead to this machine, its network or its cluster, wherever they are resolved."""

_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9._~+@=-]+)+/?")
_CREDENTIAL = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",  # Azure: metadata, DNS, health of every virtual machine
        "192.0.0.0/24",  # Oracle's metadata (192.0.0.192), and other special purposes
        "fec0::/10",  # site-local: old, and still routed in places
        "192.88.99.0/24",  # relays of 6to4
        "2002::/16",  # 6to4, which is retired: where a packet goes is up to a relay
    )
)
"""Addresses that are refused, although some version of Python counts them as public."""


_REMEDIES = {
    "scheme": "Write https://host/path.git, or send the model zoo as an archive.",
    "password": "Remove it, and name a credential of the builder.",
}


@dataclass(frozen=True, slots=True)
class SourcePolicy:
    """The sources from which model zoos may be fetched.

    Attributes:
        hosts: patterns of allowed host names; all public ones by default.
        private_hosts: ``host`` or ``host:port`` whose addresses may be private or loopback.
    """

    hosts: tuple[str, ...] = ("*",)
    private_hosts: tuple[str, ...] = ()

    def allows_private(self, host: str, port: int) -> bool:
        """Tell whether the addresses of this host may be private."""
        return host in self.private_hosts or f"{host}:{port}" in self.private_hosts


@dataclass(frozen=True, slots=True)
class AllowedSource:
    """A source that may be fetched, once the addresses of its host are found allowed as well.

    Attributes:
        source: repository, ref and folder.
        credential: name of a credential of this builder; empty: none.
    """

    source: GitSource
    credential: str = ""


def allow(url: str, ref: str, folder: str, credential: str, policy: SourcePolicy) -> AllowedSource:
    """Parse a source and check it against the policy. Raises: BuilderError: INVALID or UNSAFE."""
    try:
        source = make_source(_allowed_url(url, policy), ref, folder)
    except GitSourceError as error:
        unsafe = error.part in _REMEDIES
        raise BuilderError(
            Reason.UNSAFE if unsafe else Reason.INVALID,
            str(error),
            where="git url" if unsafe else f"git {error.part}",
            remedy=_REMEDIES.get(error.part, ""),
        ) from None
    if credential and not _CREDENTIAL.fullmatch(credential):
        raise BuilderError(
            Reason.INVALID,
            "this is not the name of a credential; never send the credential itself",
            where="git credential",
            remedy="Name a credential that the operator of the builder has configured.",
        )
    return AllowedSource(source, credential)


def _allowed_url(text: str, policy: SourcePolicy) -> GitUrl:
    url = parse_url(text)
    host = url.host.strip("[]")
    is_address = _is_address(host)
    if not is_address and not _HOST.fullmatch(host):
        raise GitSourceError("url", "the URL is malformed")
    if not _PLAIN_PATH.fullmatch(url.path) or "/../" in f"{url.path}/":
        raise GitSourceError("url", "the path of the URL is not plain")
    private = policy.allows_private(host, url.port)
    if is_address and not private:
        raise _forbidden_host(host)
    if not is_address and _NUMBERS.fullmatch(host):
        # 2130706433 and 0x7f.1 are addresses to a resolver.
        raise _forbidden_host(host)
    if not private and not matches(host, policy.hosts):
        raise _forbidden_host(host)
    return url


def is_public_name(host: str) -> bool:
    """Tell whether a host is a name in lower case of the public internet, and not an address.

    Only the network can keep what a public name resolves to from being private.
    """
    _, dot, domain = host.rpartition(".")
    is_numeric = _is_address(host) or _NUMBERS.fullmatch(host)
    is_own = not dot or domain in _PRIVATE_DOMAINS
    return not is_numeric and not is_own and _HOST.fullmatch(host) is not None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def choose_address(url: GitUrl, found: Sequence[str], policy: SourcePolicy) -> str:
    """Choose the address to connect to; a second look-up could have another answer.

    Args:
        url: of the repository.
        found: the addresses of the host.

    Raises:
        BuilderError: an address is not public (private, loopback, link-local, ...), and the policy
            does not name the host among the private ones.
    """
    host = url.host.strip("[]")
    if not found:
        raise BuilderError(
            Reason.SOURCE,
            f"the host {host!r} has no address",
            where=str(url),
            remedy="Check the spelling.",
        )
    if not policy.allows_private(host, url.port) and not all(map(is_public, found)):
        raise _forbidden_host(host)
    return found[0]


def is_public(text: str) -> bool:
    """Tell whether an address belongs to the public internet."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if any(address in network for network in _REFUSED_NETWORKS):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.teredo is not None or address in _NAT64:
            return False
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
    return address.is_global and not address.is_multicast and not address.is_reserved


def _forbidden_host(host: str) -> BuilderError:
    return BuilderError(
        Reason.UNSAFE,
        f"the builder does not fetch from {host[:80]!r}",
        where="git url",
        remedy="Use a public host that the operator of the builder allows, or send the model zoo "
        "as an archive.",
    )
