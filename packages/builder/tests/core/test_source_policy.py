"""Which git repositories are fetched."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.source_policy import (
    AllowedSource,
    SourcePolicy,
    allow,
    choose_address,
    is_public,
)

OPEN = SourcePolicy()


def check(
    url: str = "https://example.com/a.git",
    credential: str = "",
    policy: SourcePolicy = OPEN,
) -> AllowedSource:
    return allow(url, "", "", credential, policy)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://GitHub.com:443/a/b", "https://github.com/a/b"),
        ("https://git.example.com:8443/~me/b.git", "https://git.example.com:8443/~me/b.git"),
    ],
)
def test_public_https_urls_are_allowed(url: str, shown: str) -> None:
    assert str(check(url).source) == shown


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("a/b.git", Reason.UNSAFE),
        ("ext::sh -c id", Reason.UNSAFE),
        ("--upload-pack=id", Reason.UNSAFE),
        ("https://user:secret@example.com/a.git", Reason.UNSAFE),
        ("https://example.com/a.git?x=1", Reason.INVALID),
        ("https://example.com/../a.git", Reason.INVALID),
        ("https://example.com/%2e%2e/a", Reason.INVALID),
        ("https://example.com//a", Reason.INVALID),
        ("https://exam_ple.com/a.git", Reason.INVALID),
        ("https://-x.com/a.git", Reason.INVALID),
        ("https://127.0.0.1/a.git", Reason.UNSAFE),
        ("https://[::1]/a.git", Reason.UNSAFE),
        ("https://10.0.0.1/a.git", Reason.UNSAFE),
        ("https://169.254.169.254/latest", Reason.UNSAFE),
        ("https://2130706433/a.git", Reason.UNSAFE),
        ("https://0x7f.1/a.git", Reason.UNSAFE),
        ("https://0177.0.0.1/a.git", Reason.UNSAFE),
        ("https://127.1/a.git", Reason.UNSAFE),
        ("https://8.8.8.8/a.git", Reason.UNSAFE),
    ],
)
def test_other_urls_are_refused(url: str, reason: Reason) -> None:
    with pytest.raises(BuilderError) as refused:
        check(url)
    assert refused.value.failure.reason is reason
    assert "secret" not in str(refused.value.failure)


@pytest.mark.parametrize(("ref", "folder", "where"), [("-x", "", "ref"), ("", "../a", "folder")])
def test_the_part_that_is_wrong_is_named(ref: str, folder: str, where: str) -> None:
    with pytest.raises(BuilderError) as refused:
        allow("https://example.com/a.git", ref, folder, "", OPEN)
    assert refused.value.failure.reason is Reason.INVALID
    assert refused.value.failure.where == f"git {where}"


@pytest.mark.parametrize("credential", ["A B", "../x", "ghp_" + "x" * 70, "tok:en", "-x"])
def test_a_credential_is_a_name(credential: str) -> None:
    with pytest.raises(BuilderError) as refused:
        check(credential=credential)
    assert credential not in str(refused.value.failure)


def test_hosts_are_limited_by_policy() -> None:
    policy = SourcePolicy(hosts=("*.example.com",))
    check("https://git.example.com/a", policy=policy)
    for url in ("https://example.org/a", "https://example.com/a"):
        with pytest.raises(BuilderError):
            check(url, policy=policy)


ADDRESSES = [
    "127.0.0.1",
    "::1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "::",
    "ff02::1",
    "168.63.129.16",
    "::ffff:168.63.129.16",
    "::ffff:a83f:8110",
    "2002:a83f:8110::1",
    "2002:100::",
    "2002:808:808::1",
    "192.0.0.192",
    "192.0.0.8",
    "100.100.100.200",
    "fec0::1",
    "feff::1",
    "fd00:ec2::254",
    "64:ff9b::a83f:8110",
    "64:ff9b:1::1",
    "2001:0:4136:e378::1",
    "::127.0.0.1",
    "::10.0.0.1",
    "192.88.99.1",
    "198.18.0.1",
    "240.0.0.1",
    "not an address",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_that_are_not_public_are_refused_whatever_the_name(address: str) -> None:
    url = check().source.url
    with pytest.raises(BuilderError):
        choose_address(url, [address], OPEN)
    with pytest.raises(BuilderError):
        choose_address(url, ["93.184.216.34", address], OPEN)
    assert choose_address(url, [address], SourcePolicy(private_hosts=("example.com",))) == address


def test_a_public_address_is_taken() -> None:
    assert choose_address(check().source.url, ["93.184.216.34"], OPEN) == "93.184.216.34"
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(BuilderError) as refused:
        choose_address(check().source.url, [], OPEN)
    assert refused.value.failure.reason is Reason.SOURCE


@given(st.ip_addresses())
def test_no_private_address_passes(address: ipaddress.IPv4Address) -> None:
    if is_public(str(address)):
        assert not address.is_private
        assert not address.is_loopback
        assert not address.is_link_local


def test_a_private_host_is_allowed_by_name_and_port() -> None:
    policy = SourcePolicy(hosts=(), private_hosts=("127.0.0.1:8443",))
    check("https://127.0.0.1:8443/a", policy=policy)
    with pytest.raises(BuilderError):
        check("https://127.0.0.1:8444/a", policy=policy)


_HOSTS = [
    *("localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "0"),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[fe80::1]", "[fe80::1%25eth0]"),
    *("10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
    *("168.63.129.16", "192.0.0.192", "100.100.100.200", "[fd00:ec2::254]", "[fec0::1]"),
    *(
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "224.0.0.1",
        "255.255.255.255",
        "1.2.3.4.5",
        "256.1.1.1",
    ),
    *("-oProxyCommand=id", "-x.com", "a..b", ".", "..", "exam_ple.com", "a b.com", "x.com\\@y.com"),
    *("x.com#@127.0.0.1", "x.com?@127.0.0.1", "x.com%00.y.com", "x.com%2f@y.com", "x.com;id"),
    *(
        "ex\u00e4mple.com",
        "\uff11\uff12\uff17.0.0.1",
        "127\u3002" + "0.0.1",
        "$(id).x.com",
        "`id`.x.com",
    ),
    *(
        "x.com:0",
        "x.com:65536",
        "x.com:-1",
        "x.com:x",
        "x.com:\u0664",
        "a" * 64 + ".com",
        "x\t.com",
    ),
]
_URLS = [
    *(f"https://{host}/zoo.git" for host in _HOSTS if host != "localhost"),
    *(
        "",
        "zoo",
        "/etc",
        "./zoo",
        "~/zoo",
        "C:\\zoo",
        "\\\\host\\zoo",
        "https:",
        "https://",
        "https:///zoo",
    ),
    *("http://x.com/zoo", "git://x.com/zoo", "ssh://x.com/zoo", "git@x.com:zoo.git", "file:///etc"),
    *(
        "ftp://x.com/zoo",
        "ext::sh -c id",
        "fd::17",
        "ext::https://x.com/zoo",
        "hg::https://x.com/z",
    ),
    *(
        "git+https://x.com/zoo",
        "javascript:id",
        "HTTP://x.com/zoo",
        "https+unix://x/zoo",
        "//x.com/z",
    ),
    *(
        "--upload-pack=id",
        "-c core.sshCommand=id",
        "--config=x",
        "-https://x.com/zoo",
        " https://x.com/z",
    ),
    *(
        "https://me@x.com/zoo",
        "https://me:secret@x.com/zoo",
        "https://:@x.com/zoo",
        "https://@x.com/z",
    ),
    *(
        "https://x.com",
        "https://x.com/",
        "https://x.com//zoo",
        "https://x.com/../zoo",
        "https://x.com/a/..",
    ),
    *("https://x.com/%2e%2e/zoo", "https://x.com/a%00b", "https://x.com/a?b", "https://x.com/a#b"),
    *("https://x.com/a;b", "https://x.com/$(id)", "https://x.com/`id`", "https://x.com/a|b"),
    *("https://x.com/a b", "https://x.com/a\nHost: y", "https://x.com/a\r\n", "https://x.com/a\0b"),
    *("https://x.com/a\\..\\b", "https://x.com/\u202e", "https://x.com/a'b", 'https://x.com/a"b'),
    *("https://x.com/" + "a" * 3000, "ht\ttps://x.com/zoo", "https:/x.com/zoo", "https:x.com/zoo"),
]
_REFS = [
    *(
        "-x",
        "--upload-pack=id",
        "a..b",
        "a/../b",
        "../a",
        ".a",
        "a/.b",
        "a.lock",
        "a/",
        "a.",
        "a//b",
    ),
    *(
        "a@{1}",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "a?b",
        "a*",
        "a[b",
        "a\\b",
        "a\0b",
        "a\nb",
        "a;id",
        "$(id)",
    ),
    *(
        "`id`",
        "a|b",
        "a&b",
        "a'b",
        'a"b',
        "\u202ea",
        "\u0430",
        "a" * 300,
        "@",
        "/a",
        "refs/../heads",
    ),
]
_FOLDERS = [
    *(
        "/etc",
        "..",
        "../a",
        "a/..",
        "a/../b",
        ".",
        "./a",
        "a/./b",
        "-x",
        "--output=x",
        "a//b",
        "a/",
    ),
    *(
        "a\\b",
        "a\0b",
        "a\nb",
        "a;id",
        "$(id)",
        "`id`",
        "a|b",
        "a*",
        "a?",
        "a:b",
        "\u202ea",
        "~",
        "~/a",
    ),
]
HOSTILE = [
    *((url, "", "") for url in _URLS),
    *(("https://example.com/a", ref, "") for ref in _REFS),
    *(("https://example.com/a", "", folder) for folder in _FOLDERS),
]


@pytest.mark.parametrize("source", HOSTILE, ids=ascii)
def test_hostile_sources_are_refused_one_by_one(source: tuple[str, str, str]) -> None:
    with pytest.raises(BuilderError) as refused:
        allow(*source, "", OPEN)
    failure = refused.value.failure
    assert failure.reason in (Reason.UNSAFE, Reason.INVALID)
    said = f"{failure.what}{failure.where}{failure.remedy}"
    assert said.isprintable()
    assert "secret" not in said


def test_many_were_tried() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 120
