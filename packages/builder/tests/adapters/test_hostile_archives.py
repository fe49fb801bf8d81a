"""Archives as attackers make them, one by one: each is refused, and leaves nothing but its context.

``test_archives`` has what is taken, and random ones.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zoos

from edl_builder.adapters import archives
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.failure import BuilderError, Reason

LIMITS = ArchiveLimits(1 << 20, 1 << 20, 50)
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
GOOD = zoos.tar({"m.py": "x = 1\n"})
END = bytes(1024)

PLACES = [
    *(
        "/etc/passwd",
        "//etc/passwd",
        "..",
        "../x",
        "./../x",
        "a/..",
        "a/../../x",
        "a/./../../x",
    ),
    *("model_zoo/../../x", "../" * 20 + "etc/passwd", "a\\..\\x", "..\\x", "C:\\x", "\\\\host\\x"),
    *("a\nb", "a\rb", "a\tb", "a\x1b[2Jb", "a\x7fb", "a/\u202ex", "a/\u2028x", "a\u200bb"),
    *("a/../b", "..//x", ".././x", "a//..//..//x"),
]
TARGETS = [
    *("/etc/passwd", "/", "//x", "..", "../..", "../x", "./../x", "a/..", "a/../..", "a/../../x"),
    *("../" * 20 + "etc/passwd", "..\\x", "\\x", "C:\\x", "a\nb", "\x1b[2J", "a/./../x"),
    *(
        "/proc/self/fd/0",
        "/var/run/docker.sock",
        "/dev/zero",
        "../model_zoo/../../x",
        "b/c/../../../x",
    ),
]
SPECIAL = {
    "hard link": tarfile.LNKTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "sparse file": tarfile.GNUTYPE_SPARSE,
}


def pack(form: int, *members: tarfile.TarInfo, files: dict[str, str] | None = None) -> bytes:
    content = b""
    for info in members:
        content += info.tobuf(form, "utf-8", "surrogateescape")
        content += bytes(info.size + -info.size % 512 if info.isreg() else 0)
    return content + zoos.tar(files or {"m.py": "x"})


def make_extension(fields: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """A header that gives the next one these fields, as they are."""
    info = zoos.member("x", type=kind, size=len(fields))
    return info.tobuf(tarfile.USTAR_FORMAT) + fields + bytes(-len(fields) % 512)


def field(name: str, value: str) -> bytes:
    rest = f" {name}={value}\n".encode()
    size = len(rest)
    while size != len(rest) + len(str(size)):
        size = len(rest) + len(str(size))
    return str(size).encode() + rest


def header(**raw: bytes) -> bytes:
    """A header with fields of any bytes, and a checksum that is right."""
    places = {"mode": 100, "size": 124, "mtime": 136, "type": 156, "linkname": 157, "magic": 257}
    content = bytearray(zoos.member("x").tobuf(tarfile.USTAR_FORMAT))
    for name, value in raw.items():
        content[places[name] : places[name] + len(value)] = value
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content)
    return bytes(content)


def attacks() -> Iterator[tuple[str, bytes]]:
    for label, form in FORMATS.items():
        for place in PLACES:
            yield f"{label} file {place!a}", pack(form, zoos.member(place, size=3))
        for target in TARGETS:
            link = zoos.member("l", type=tarfile.SYMTYPE, linkname=target)
            yield f"{label} link to {target!a}", pack(form, link)
        for kind, number in SPECIAL.items():
            yield f"{label} {kind}", pack(form, zoos.member("x", type=number, linkname="m.py"))
    for place in PLACES:
        yield f"folder {place!a}", pack(tarfile.PAX_FORMAT, zoos.member(place, type=b"5"))
        yield f"path by extension {place!a}", make_extension(field("path", place)) + GOOD
    for target in TARGETS:
        link = zoos.member("l", type=tarfile.SYMTYPE, linkname="m.py").tobuf(tarfile.USTAR_FORMAT)
        yield (
            f"target by extension {target!a}",
            make_extension(field("linkpath", target)) + link + GOOD,
        )
        if not target.startswith("/"):
            deep = zoos.member("pkg/l", type=tarfile.SYMTYPE, linkname=f"../{target}")
            yield f"deep link to ../{target!a}", pack(tarfile.PAX_FORMAT, deep)
    yield from overlapping()
    yield from numbers()
    yield from broken_archives()


def overlapping() -> Iterator[tuple[str, bytes]]:
    """One name that is several things, or below something that is no folder."""
    link = zoos.member("a", type=tarfile.SYMTYPE, linkname="b")
    folder, file = zoos.member("a", type=b"5"), zoos.member("a", size=1)
    below = zoos.member("a/x", size=1)
    for label, members in {
        "file below a link": (link, below),
        "file below a file": (file, below),
        "link above a file": (below, link),
        "file twice": (file, file),
        "file twice, written otherwise": (file, zoos.member("./a", size=1)),
        "file and folder": (file, folder),
        "folder and file": (folder, file),
        "folder and link": (folder, link),
        "link twice": (link, link),
        "folder below a link": (link, zoos.member("a/d", type=b"5")),
        "link below a link": (link, zoos.member("a/l", type=tarfile.SYMTYPE, linkname="x")),
    }.items():
        yield label, pack(tarfile.PAX_FORMAT, *members)
    requirements = zoos.member("requirements.txt", type=tarfile.SYMTYPE, linkname="m.py")
    yield "linked requirements", pack(tarfile.PAX_FORMAT, requirements)
    for text in ("-r /etc/passwd", "-e .", "--index-url http://x.com", "./local", "${HOME}"):
        yield f"requirements {text}", zoos.tar({"m.py": "", "requirements.txt": text})


def numbers() -> Iterator[tuple[str, bytes]]:
    """Sizes that are none, or are of something else."""
    for label, size in {
        "negative": b"\xff" * 12,
        "of 2 to the 80": b"\x80" + b"\xff" * 11,
        "of 2 to the 62": b"\x80\0\0\0@" + bytes(7),
        "of 8 GB": b"77777777777\0",
        "of letters": b"zzzzzzzzzzz\0",
        "of a minus": b"-0000000001\0",
    }.items():
        yield f"size {label}", header(size=size) + GOOD
    for text in ("-1", "99999999999999999999", str(1 << 40)):
        yield f"size by extension {text}", make_extension(field("size", text)) + header() + GOOD
    for count in (51, 200):
        yield f"{count} files", zoos.tar({f"f{n}": "" for n in range(count)})
    yield "too many bytes", zoos.tar({"a": bytes(600_000), "b": bytes(600_000)})
    yield "deep", pack(tarfile.PAX_FORMAT, zoos.member("d/" * 70 + "x"))
    yield "long name", pack(tarfile.PAX_FORMAT, zoos.member("x" * 300))
    yield "long path", pack(tarfile.PAX_FORMAT, zoos.member("/".join(["x" * 200] * 6)))
    for name in ("GNU.sparse.major", "GNU.sparse.map", "GNU.sparse.name", "GNU.sparse.realsize"):
        yield f"extension {name}", make_extension(field(name, "1")) + GOOD
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, b"K"):
        yield f"nine extensions {kind!r}", make_extension(b"12 path=abc\n", kind) * 9 + GOOD
        huge = zoos.member("x", type=kind, size=1 << 33).tobuf(tarfile.GNU_FORMAT)
        yield f"extension of 8 GB {kind!r}", huge + GOOD


def broken_archives() -> Iterator[tuple[str, bytes]]:
    """What is cut off, goes on, or is no archive at all."""
    two = zoos.tar({"a.py": "a" * 600, "b.py": "b" * 600})
    zipped = gzip.compress(two)
    for length in (0, 1, 100, 511, 512, 700, 1024, 1536, 1600, 2048, 2600, 3000):
        yield f"cut at {length}", two[:length]
    for part in range(1, 10):
        yield f"gzip cut at {part} of 10", zipped[: len(zipped) * part // 10]
    for place in (12, 20, len(zipped) // 2, len(zipped) - 6, len(zipped) - 2):
        changed = bytearray(zipped)
        changed[place] ^= 0xFF
        yield f"gzip changed at {place}", bytes(changed)
    yield "bomb", gzip.compress(bytes(8 << 20))
    yield "bomb in an entry", gzip.compress(zoos.tar({"a": bytes(8 << 20)}))
    yield "endless padding", GOOD + bytes(3 << 20)
    yield "zipped twice", gzip.compress(gzip.compress(GOOD))
    yield "nothing but an end", END
    yield "only folders", pack(tarfile.PAX_FORMAT, zoos.member("d", type=b"5"))[:512] + END
    for label, content in {
        "zip": b"PK\x03\x04" + bytes(600),
        "xz": b"\xfd7zXZ\0" + bytes(600),
        "bzip2": b"BZh9" + bytes(600),
        "zstd": b"\x28\xb5\x2f\xfd" + bytes(600),
        "text": b"x = 1\n" * 200,
        "pickle": b"\x80\x04\x95" + bytes(600),
    }.items():
        yield f"a {label}", content


ATTACKS = dict(attacks())


@pytest.mark.parametrize("name", ATTACKS)
def test_each_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "archive").write_bytes(ATTACKS[name])
    with pytest.raises(BuilderError) as refused:
        archives.repack(folder / "archive", folder / "context.tar", LIMITS)
    assert refused.value.failure.reason in (Reason.UNSAFE, Reason.INVALID, Reason.LIMIT)
    assert refused.value.failure.what.isprintable()
    assert {path.name for path in folder.iterdir()} <= {"archive", "context.tar"}
    assert list(tmp_path.iterdir()) == [folder]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8 << 20


def test_what_is_broken_on_purpose_is_fine_otherwise(tmp_path: Path) -> None:
    """The parts that attacks are made of are taken where nothing is wrong with them."""
    for number, content in enumerate((GOOD, header() + GOOD, pack(tarfile.PAX_FORMAT))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "archive").write_bytes(content)
        archives.repack(folder / "archive", folder / "context.tar", LIMITS)


def test_many_were_tried() -> None:
    assert len(set(ATTACKS.values())) >= 150
