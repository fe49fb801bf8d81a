"""Which git repositories may be fetched: decisions about URLs, refs, folders, addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from edl_builder.core.names import Reason, Refused
from edl_builder.core.references import matches

_LONGEST_URL = 2048
_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    r"(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
)
_NUMBERS = re.compile(r"(?:0x[0-9a-f]+|[0-9]+)(?:\.(?:0x[0-9a-f]+|[0-9]+))*")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~%+@=-]+)+/?")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,254}")
_FOLDER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_. +@=-]*(?:/[A-Za-z0-9_.][A-Za-z0-9_. +@=-]*)*")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class SourcePolicy:
    """Where model zoos may be fetched from.

    Attributes:
        hosts: patterns of allowed host names; all public ones by default.
        private_hosts: ``host`` or ``host:port`` whose addresses may be private or loopback.
    """

    hosts: tuple[str, ...] = ("*",)
    private_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GitUrl:
    """A URL that may be fetched, once its addresses are found allowed as well."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        port = "" if self.port == 443 else f":{self.port}"
        return f"https://{self.host}{port}{self.path}"


@dataclass(frozen=True, slots=True)
class GitSource:
    """A zoo in a repository."""

    url: GitUrl
    ref: str = ""
    folder: str = ""
    credential: str = ""


def check_git(url: str, ref: str, folder: str, credential: str, policy: SourcePolicy) -> GitSource:
    """Read and judge a source.

    Raises:
        Refused: it is malformed or not allowed.
    """
    source = GitSource(_check_url(url, policy), ref, folder, credential)
    if ref and (
        not _REF.fullmatch(ref)
        or ".." in ref
        or "@{" in ref
        or "//" in ref
        or ref.endswith((".lock", "/", "."))
        or any(part.startswith((".", "-")) for part in ref.split("/"))
    ):
        raise _bad(f"{ref[:80]!r} is no branch, tag or commit", "git ref")
    if folder and (
        not _FOLDER.fullmatch(folder) or any(p in (".", "..") for p in folder.split("/"))
    ):
        raise _bad(f"{folder[:80]!r} is no folder of a repository", "git folder")
    if credential and not _NAME.fullmatch(credential):
        raise _bad(
            "a credential is named, never sent: this is no name",
            "git credential",
            "Name one that the operator of the builder has set up.",
        )
    return source


def _check_url(text: str, policy: SourcePolicy) -> GitUrl:
    # Nothing of the URL is shown before it is known to hold no password.
    if len(text) > _LONGEST_URL or not text.isascii() or not text.isprintable() or " " in text:
        raise _bad("the URL is malformed", "git url")
    try:
        parts = urlsplit(text)
        port = parts.port or 443
    except ValueError:
        raise _bad("the URL is malformed", "git url") from None
    if parts.scheme != "https":
        raise Refused(
            Reason.UNSAFE,
            f"only https URLs are fetched, not {parts.scheme[:20] or 'a bare path'!r}",
            where="git url",
            remedy="Write https://host/path.git, or send the zoo as an archive.",
        )
    if "@" in parts.netloc:
        raise Refused(
            Reason.UNSAFE,
            "the URL holds a user name or password",
            where="git url",
            remedy="Leave it out, and name a credential of the server.",
        )
    host = (parts.hostname or "").rstrip(".")
    if parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
        raise _bad("the URL is malformed", "git url")
    if "/../" in f"{parts.path}/" or "%" in parts.path:
        raise _bad("the URL's path is not plain", "git url")
    private = f"{host}:{port}" in policy.private_hosts or host in policy.private_hosts
    literal = _literal(host)
    if literal is not None and not private:
        raise _forbidden_host(host)
    if literal is None and not _HOST.fullmatch(host):
        raise _bad("the URL is malformed", "git url")
    if literal is None and _NUMBERS.fullmatch(host):
        # 2130706433 and 0x7f.1 are addresses to a resolver.
        raise _forbidden_host(host)
    if not private and not matches(host, policy.hosts):
        raise _forbidden_host(host)
    return GitUrl(f"[{host}]" if ":" in host else host, port, parts.path)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def choose_address(url: GitUrl, found: Sequence[str], policy: SourcePolicy) -> str:
    """The address to connect to, and to no other: a second look-up could answer differently.

    Args:
        url: what is to be fetched.
        found: the addresses that the host's name has.

    Raises:
        Refused: one of the addresses is private, loopback, link-local or otherwise no public
            one, and the host is not named among the private hosts.
    """
    bare = url.host.strip("[]")
    if not found:
        raise Refused(
            Reason.SOURCE,
            f"the host {bare!r} has no address",
            where=str(url),
            remedy="Check the spelling.",
        )
    allowed = f"{bare}:{url.port}" in policy.private_hosts or bare in policy.private_hosts
    if not allowed and not all(is_public(each) for each in found):
        raise _forbidden_host(bare)
    return found[0]


def is_public(text: str) -> bool:
    """Whether an address is one of the internet at large."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address.teredo is not None or address in _NAT64:
            return False
        if inner is not None:
            return is_public(str(inner))
    return address.is_global and not address.is_multicast and not address.is_reserved


_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def _forbidden_host(host: str) -> Refused:
    return Refused(
        Reason.UNSAFE,
        f"nothing is fetched from {host[:80]!r}",
        where="git url",
        remedy="Use a public host that the operator of the builder allows, or send the zoo as "
        "an archive.",
    )


def _bad(what: str, where: str, remedy: str = "") -> Refused:
    return Refused(Reason.INVALID, what, where=where, remedy=remedy)
