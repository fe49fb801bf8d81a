"""Fuzz test of git sources: each is refused, or is a plain public https URL and harmless words.

``EDL_FUZZ_EXAMPLES=100000 pytest packages/builder/tests/core/test_source_policy_fuzz.py`` tries
more of them.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from fuzzing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edl_builder.core.failure import BuilderError
from edl_builder.core.source_policy import SourcePolicy, allow

OPEN = SourcePolicy()

odd = st.text(alphabet="@:/\\#?%&;|$`'\"<>()[]{}*~^!-_.=+ \t\r\n\0\x7f0aZé\u202e٠。／", max_size=6)
schemes = st.sampled_from(
    [
        "https://",
        "HTTPS://",
        "https:",
        "https:/",
        "http://",
        "git://",
        "ssh://",
        "file://",
        "ext::",
        "fd::",
        "//",
        "",
        "-",
        "--upload-pack=",
        "https://https://",
        "ht\ttps://",
    ]
)
users = st.sampled_from(["", "", "", "me@", "me:pw@", ":@", "@", "example.com:443@", "a%40b@"])
hosts = st.sampled_from(
    [
        "example.com",
        "EXAMPLE.com",
        "example.com.",
        "localhost",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:7f00:1]",
        "[fe80::1%25eth0]",
        "10.0.0.1",
        "169.254.169.254",
        "192.168.1.1",
        "xn--e1afmkfd.xn--p1ai",
        "exämple.com",
        "１２７.0.0.1",
        "-oProxyCommand=x",
        "a..b",
        ".",
        "",
        "example.com\\@127.0.0.1",
        "example.com#@127.0.0.1",
    ]
)
ports = st.sampled_from(["", "", ":443", ":8443", ":0", ":65536", ":-1", ":٤", ":x", ":"])
paths = st.sampled_from(
    [
        "/zoo.git",
        "/a/b.git",
        "",
        "/",
        "/../x",
        "/%2e%2e/x",
        "/a//b",
        "/zoo.git?x=1",
        "/zoo.git#v1",
        "/zoo.git;x",
        "/$(id)",
        "/`id`",
        "/zoo.git\nHost: x",
        "/-x",
        "/a/./b",
        "/a\\..\\b",
    ]
)


@st.composite
def urls(draw: st.DrawFn) -> str:
    """URLs as attackers write them, and what looks like some."""
    parts = [draw(each) for each in (schemes, users, hosts, ports, paths)]
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), draw(odd))
    return "".join(parts)


words = st.one_of(
    st.just(""),
    st.sampled_from(["main", "v1.0", "feature/x", "a" * 40, "refs/heads/main", "zoo/models"]),
    odd,
    st.builds(lambda a, b, c: a + b + c, st.sampled_from(["main", "-", "--x=", "a/"]), odd, odd),
)


@settings(max_examples=examples(500))
@given(url=urls(), ref=words, folder=words, credential=words)
@example("https://example.com/a", "main", "zoo", "mine")
@example("https://example.com\\@127.0.0.1/a", "", "", "")
@example("https://2130706433/a", "", "", "")
def test_what_is_accepted_is_harmless(url: str, ref: str, folder: str, credential: str) -> None:
    try:
        allowed = allow(url, ref, folder, credential, OPEN)
    except BuilderError as refused:
        failure = refused.failure
        assert failure.what
        said = f"{failure.what}{failure.where}{failure.remedy}"
        assert ":pw@" not in said
        assert said.isprintable()
        return
    source = allowed.source
    whole = str(source.url)
    assert "@" not in url.partition("://")[2].partition("/")[0]
    seen = urlsplit(whole)
    assert seen.scheme == "https"
    assert seen.username is None
    assert seen.password is None
    assert not seen.query
    assert not seen.fragment
    assert whole.isascii()
    assert whole.isprintable()
    assert not set(whole) & set(" \\\"'`$;|<>(){}")
    host = (seen.hostname or "").rstrip(".")
    assert host == source.url.host.strip("[]")
    assert not host.startswith("-")
    assert not host.replace(".", "").isdigit() or ipaddress.ip_address(host).is_global
    assert ":" not in host or ipaddress.ip_address(host).is_global
    assert "/../" not in f"{seen.path}/"
    for word in (source.ref, source.folder, allowed.credential):
        assert not word.startswith("-")
        assert word.isascii()
        assert word.isprintable()
        assert ".." not in word.split("/")
    assert not set(source.ref) & set(" ~^:?*[\\")
    assert not any(part.startswith((".", "-")) for part in source.ref.split("/"))
