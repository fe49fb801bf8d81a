"""A zoo's requirements.txt: what is taken, what is refused, and the file that pip gets."""

from __future__ import annotations

import pytest
from fuzzing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from edl_builder.core.failure import BuilderError
from edl_builder.core.requirements import read_requirements

TAKEN = {
    "": "",
    "# nothing\n\n": "",
    "numpy": "numpy\n",
    "numpy==1.2 # why\n\n# all\nscipy[all]>=1,<2; python_version > '3'\n": (
        'numpy==1.2\nscipy[all]<2,>=1; python_version > "3"\n'
    ),
    "a @ https://example.com/a.whl\n": "a@ https://example.com/a.whl\n",
    "a @ git+https://example.com/a.git@v1#egg=a": "a@ git+https://example.com/a.git@v1#egg=a\n",
    "--extra-index-url https://download.example.com/whl\nx": (
        "--extra-index-url https://download.example.com/whl\nx\n"
    ),
    "--index-url=https://x.com/s\n--pre\n--no-binary :all:\n": (
        "--index-url https://x.com/s\n--pre\n--no-binary :all:\n"
    ),
    "a==1 \\\n  --hash=sha256:00 \\\n  --hash sha256:11\n": (
        "a==1 --hash=sha256:00 --hash=sha256:11\n"
    ),
    "\ufeffnumpy\r\nscipy\r\n": "numpy\nscipy\n",
    "numpy # from the caf\u00e9\n": "numpy\n",
    # A comment continues nothing, whatever it ends with.
    "# a \\\nnumpy": "numpy\n",
    "numpy \\\n# a \\\nscipy": "numpy\nscipy\n",
    # The declared encoding of a comment is no encoding of what pip reads.
    "# -*- coding: utf-7 -*-\nnumpy": "numpy\n",
}


@pytest.mark.parametrize("text", TAKEN)
def test_packages_are_taken_and_written_anew(text: str) -> None:
    made = read_requirements(text.encode()).decode()
    assert made.replace(" @ ", "@ ") == TAKEN[text]  # as the version of packaging writes it


REFUSED = [
    *("-r other.txt", "-rother.txt", "--requirement x", "--requirement=x", "-r https://x.com/r"),
    *("-c x.txt", "-cx.txt", "--constraint x", "--constraint=x", "--build-constraint x"),
    *("-e .", "-e.", "--editable .", "-e git+file:///etc", "-e git+https://x.com/a#egg=a"),
    *("./local", "/etc/x", "../x", "~/x", ".", "..", "C:\\x", "\\\\host\\share", "a/b", "./a.whl"),
    *("a.whl", "a-1-py3-none-any.whl", "a.zip", "a.tar.gz", "a.tgz", "a.tar.bz2", "x/a.whl"),
    *("a===../../x.whl", "a===1/2", "a===1.whl", "a==1.0.zip", "a[/etc]", "a[../x]"),
    *("a --global-option=x", "a --install-option=x", "a --config-settings=x=y", "a -e ."),
    *("a --hash=md5:00", "a --hash=sha256:zz", "a --hash sha256:00 -r x", "a --no-binary :all:"),
    *("--trusted-host x", "--trusted-host=x.com", "--proxy http://x", "--cert /etc/x"),
    *("--client-cert x", "--no-index", "--use-feature=x", "--process-dependency-links", "--pre x"),
    *("--pre=x", "--prefer-binary x", "--require-hashes=no", "--unknown", "--", "-", "-i", "-f"),
    *("--only-binary", "--only-binary a b", "--no-binary=../x", "--index-url", "-f /etc", "-f ."),
    *("--extra-index-url http://x.com", "--index-url=http://x.com", "-i http://x.com", "-f x"),
    *("--index-url https://user:secret@x.com", "--index-url https://secret@x.com/s"),
    *("--index-url https://x.com/s --trusted-host x.com", "--index-url=https://x.com -r y"),
    *(
        "--find-links file:///etc",
        "-f git+file:///etc",
        "-f https://",
        "-i https:x",
        "-i https:///x",
    ),
    *("--extra-index-url https://${TOKEN}.x.com", "--index-url https://x.com/$HOME"),
    *("https://x.com/a.whl", "file:///etc/passwd", "git+https://x.com/a.git", "git+file:///etc"),
    *("a @ file:///etc/passwd", "a @ http://x.com/a.whl", "a @ git+ssh://x.com/a", "a @ /etc/x"),
    *("a @ git+git://x.com/a", "a @ git+http://x.com/a", "a @ hg+https://x.com/a", "a @ x"),
    *("a @ bzr+ssh://x.com", "a @ svn+https://x.com/a", "a @ ftp://x.com/a", "a @ ./a.whl"),
    *("a @ https://user:secret@x.com/a.whl", "a @ https://secret@x.com/a", "a @ https://;@x.com/a"),
    *("a @ https://x.com/${TOKEN}", "a @ https://x.com/a'", "a @ git+https://x.com/a;x@secret"),
    *("numpy\n-r \\\n other.txt", "$(id)", "`id`", "${NAME}", "a; python_version > '${HOME}'"),
    *("a;;\n--install-option=x", "a; python_version > '3' --hash=sha256:00 -r x", "a,b", "a b"),
    *("a; platform_version != ' --no-index '", "a; platform_node != '\\\\'", "=", "==1", "@", ";"),
    # Addresses of private networks, of this machine and of clouds, in all notations.
    *("a @ https://127.0.0.1/a.whl", "a @ git+https://10.0.0.1/a", "-i https://169.254.169.254/"),
    *("a @ https://[::1]/a.whl", "-f https://[fd00:ec2::254]/", "a @ https://[::ffff:10.0.0.1]/a"),
    *("a @ https://2130706433/a.whl", "a @ https://0x7f.1/a.whl", "a @ https://127.0.0.1./a.whl"),
    *(
        "a @ https://localhost/a.whl",
        "--extra-index-url https://x.LOCALHOST",
        "a @ https://017.1/a",
    ),
    # Names that lead to this machine, its network or its cluster.
    *(
        "a @ https://ip6-localhost/a.whl",
        "a @ https://localhost.localdomain/a.whl",
        "-i https://i/",
    ),
    *("a @ https://intranet/a.whl", "-f https://metadata.google.internal/", "-i https://x.svc/s"),
    *("a @ https://host.docker.internal/a.whl", "-i https://kubernetes.default.svc.cluster.local"),
    *("-i https://printer.LOCAL/s", "a @ https://localhost6.localdomain6/a.whl"),
    # A comment that continues nothing, with an option under it.
    *("# x \\\n-r other.txt", "  # x \\\n--extra-index-url http://x.com", "a # x\n-e ."),
    *("a \\\n# x \\\n-e git+file:///etc", "# -*- coding: utf-7 -*-\n+AC0-r x"),
    *("# coding=utf-16\n-r x", "# vim: fileencoding=utf-7\n+AC0ALQ-index-url"),
    # What splits lines elsewhere, and what looks like ASCII.
    *("a\x0b-r x", "a\x0c-r x", "a\x1c-r x", "a\x85-r x", "a\u2028-r x", "a\0", "\x1b[2J"),
    *("numpy\u200b", "\uff0dr x", "\u2212r x", "nu\u043cpy", "a\u00a0-r x", "--index-url\u00a0x"),
]


@pytest.mark.parametrize("host", ["pypi.org", "local.example.com", "internal.io", "mylocal.de"])
def test_public_hosts_are_accepted(host: str) -> None:
    assert read_requirements(f"-i https://{host}/simple".encode())


@pytest.mark.parametrize("text", REFUSED)
def test_other_lines_are_refused_with_their_number(text: str) -> None:
    with pytest.raises(BuilderError) as refused:
        read_requirements(b"toolz\n" + text.encode())
    failure = refused.value.failure
    assert failure.where.startswith("requirements.txt, line")
    assert "secret" not in str(failure)


def test_many_ways_around_were_tried() -> None:
    assert len(set(REFUSED)) == len(REFUSED) >= 120


def test_text_that_is_none_is_refused() -> None:
    for content in (b"\xff\xfe", "-r x".encode("utf-16"), b"x" * 300_000):
        with pytest.raises(BuilderError):
            read_requirements(content)


_PIECES = st.sampled_from(
    [
        *(
            "numpy",
            "-r",
            "-e",
            "--index-url",
            "https://x.com",
            "\\\n",
            "\n",
            " ",
            "#",
            "${A}",
            "==",
        ),
        *("\\", "\r", "\x0b", "\u2028", " @ ", ";", "'", "--hash=sha256:0", "/", ".", "[a]", "1"),
    ]
)


@settings(max_examples=examples(200))
@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=12).map("".join)))
def test_nothing_gets_through_but_what_is_meant(text: str) -> None:
    """Fuzz: every line of the new file is a package with hashes, or one of a few options."""
    try:
        made = read_requirements(text.encode("utf-8", "surrogatepass"))
    except BuilderError:
        return
    assert "${" not in made.decode("ascii")
    assert read_requirements(made) == made
    for line in made.decode("ascii").splitlines():
        first, *rest = line.split(" ")
        if first in {"--pre", "--prefer-binary", "--require-hashes"}:
            assert rest == []
        elif first in {"--only-binary", "--no-binary"}:
            assert len(rest) == 1
        elif first in {"--index-url", "-i", "--extra-index-url", "--find-links", "-f"}:
            assert len(rest) == 1
            assert rest[0].startswith(("https://", "git+https://"))
        else:
            found = Requirement(line.partition(" --hash=")[0])
            assert found.url is None or found.url.startswith(("https://", "git+https://"))
