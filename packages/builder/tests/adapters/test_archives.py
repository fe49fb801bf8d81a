"""Archives: what comes out of them, and that nothing else does, whatever they hold."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import zlib
from pathlib import Path

import pytest
import zoos
from fuzzing import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edl_builder.adapters import archives
from edl_builder.core.archive import ArchiveLimits
from edl_builder.core.content import Zoo
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.recipe import EPOCH

LIMITS = ArchiveLimits(1 << 20, 1 << 18, 50)


def repack(content: bytes, folder: Path, limits: ArchiveLimits = LIMITS) -> tuple[Zoo, Path]:
    path = folder / "archive"
    path.write_bytes(content)
    context = folder / "context.tar"
    return archives.repack(path, context, limits), context


def names(context: Path) -> dict[str, tuple[bytes, int, bytes]]:
    with tarfile.open(context) as tar:
        return {
            member.name: (
                member.type,
                member.mode,
                file.read()
                if member.isreg() and (file := tar.extractfile(member))
                else member.linkname.encode(),
            )
            for member in tar
            if not member.isdir()
        }


def test_content_goes_through_and_nothing_else(tmp_path: Path) -> None:
    odd = zoos.member("run.sh", mode=0o4777, uid=7, gid=8, uname="me", mtime=12345)
    link = zoos.member("pkg/l", type=b"2", linkname="../a.py")
    zoo, context = repack(
        zoos.tar({"./a.py": "a", "requirements.txt": "x\n"}, [odd, link]), tmp_path
    )
    assert names(context) == {
        "zoo/model_zoo/a.py": (tarfile.REGTYPE, 0o644, b"a"),
        "zoo/model_zoo/requirements.txt": (tarfile.REGTYPE, 0o644, b"x\n"),
        "zoo/model_zoo/run.sh": (tarfile.REGTYPE, 0o755, b""),
        "zoo/model_zoo/pkg/l": (tarfile.SYMTYPE, 0o644, b"../a.py"),
    }
    with tarfile.open(context) as tar:
        assert {(m.uid, m.gid, m.mtime, m.uname) for m in tar} == {(0, 0, EPOCH, "")}
        assert "zoo/model_zoo/pkg" in tar.getnames(), "the engine would date it"
    assert zoo.requirements == b"x\n"
    assert zoo.nbytes == 3
    assert [f.executable for f in sorted(zoo.files)] == [False, False, False, True]


@pytest.mark.parametrize("zipped", [False, True])
def test_several_members_and_padding(tmp_path: Path, zipped: bool) -> None:
    content = zoos.tar({"a.py": "a"}, zipped=zipped)
    zoo, _ = repack(content + bytes(1024), tmp_path)
    assert len(zoo.files) == 1


def test_a_gzip_in_parts(tmp_path: Path) -> None:
    plain = zoos.tar({"a.py": "a" * 5000})
    parts = gzip.compress(plain[:3000]) + gzip.compress(plain[3000:])
    assert repack(parts, tmp_path)[0].nbytes == 5000


def test_long_names_and_other_formats(tmp_path: Path) -> None:
    for number, form in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        folder = tmp_path / str(number)
        folder.mkdir()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=form) as out:
            info = tarfile.TarInfo("d" * 120 + "/" + "é" * 100)
            info.size = 1
            out.addfile(info, io.BytesIO(b"x"))
        (file,) = repack(buffer.getvalue(), folder)[0].files
        assert file.path == "d" * 120 + "/" + "é" * 100


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(100 << 20))
    with pytest.raises(BuilderError) as refused:
        repack(bomb, tmp_path)
    assert refused.value.failure.reason is Reason.LIMIT
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 4 << 20


def test_a_bomb_is_refused_at_its_first_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither read to its end nor written: 2 GB of zeros in an entry that says so."""
    header = zoos.member("x", size=2 << 30).tobuf()
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(header) + b"".join(packer.compress(bytes(1 << 20)) for _ in range(64))
    content = io.BytesIO(bomb + packer.flush())
    folder = tmp_path / "f"
    folder.mkdir()
    inflated = archives._Content(content)
    assert inflated.read(512) == header
    assert content.tell() <= 1 << 20
    take, taken = archives._Content._take, list[int]()

    def noting(self: archives._Content, size: int) -> bytes:
        piece = take(self, size)
        taken.append(len(piece))
        return piece

    monkeypatch.setattr(archives._Content, "_take", noting)
    with pytest.raises(BuilderError) as refused:
        repack(content.getvalue(), folder, ArchiveLimits(1 << 30, 1 << 30, 20_000))
    assert refused.value.failure.reason is Reason.LIMIT
    assert sum(taken) <= 1 << 20, "so much was unpacked before it was refused"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1 << 20


def _pax(body: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    info = zoos.member("x", type=kind, size=len(body))
    return info.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("count", [9, 5000])
def test_headers_in_a_row_are_refused(tmp_path: Path, kind: bytes, count: int) -> None:
    with pytest.raises(BuilderError) as refused:
        repack(_pax(b"11 path=abc\n", kind) * count + zoos.tar({"a": "x"}), tmp_path)
    assert refused.value.failure.reason is Reason.INVALID


def test_a_few_headers_in_a_row_are_taken(tmp_path: Path) -> None:
    row = _pax(b"16 comment=abcd\n", tarfile.XGLTYPE) + _pax(b"13 path=b.py\n")
    zoo, _ = repack(row + zoos.tar({"a.py": "x"}), tmp_path)
    assert [file.path for file in zoo.files] == ["b.py"]


def test_an_extension_that_is_too_large_is_refused(tmp_path: Path) -> None:
    large = _pax(b"20001 comment=" + b"x" * 19986 + b"\n")
    with pytest.raises(BuilderError, match="too large ones"):
        repack(large + zoos.tar({"a": "x"}), tmp_path)


def test_extensions_are_bounded_in_sum(tmp_path: Path) -> None:
    one = _pax(b"15001 comment=" + b"x" * 14986 + b"\n") + zoos.member("d", type=b"5").tobuf()
    with pytest.raises(BuilderError, match="too many extension headers"):
        repack(one * 1200, tmp_path, ArchiveLimits(1 << 30, 1 << 30, 20_000))


def test_an_extension_that_is_slow_to_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuilderError):
        repack(_pax(b"1" * 16_000) + zoos.tar({"a": "x"}), tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        _pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"),
        _pax(b"24 GNU.sparse.map=0,1,2\n"),
        zoos.member("s", type=tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT)[:482] + b"\1",
    ],
)
def test_sparse_files_are_refused_without_their_map(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(BuilderError) as refused:
        repack(header + bytes(-len(header) % 512) + zoos.tar({"a": "x"}), tmp_path)
    assert refused.value.failure.reason in (Reason.UNSAFE, Reason.INVALID)


@pytest.mark.parametrize("zipped", [False, True])
def test_much_after_the_end_is_refused(tmp_path: Path, zipped: bool) -> None:
    content = zoos.tar({"a.py": "a"}) + bytes(3 << 20)
    with pytest.raises(BuilderError, match="data after its end"):
        repack(gzip.compress(content) if zipped else content, tmp_path)


def test_a_link_in_the_place_of_the_requirements_is_refused(tmp_path: Path) -> None:
    link = zoos.member("./requirements.txt", type=b"2", linkname="deps.txt")
    with pytest.raises(BuilderError, match="is a symbolic link"):
        repack(zoos.tar({"deps.txt": "numpy\n"}, [link]), tmp_path)


def test_pip_gets_the_requirements_as_they_were_judged(tmp_path: Path) -> None:
    text = "# -*- coding: utf-7 -*-\nnumpy==1.2  # \\\n"
    zoo, context = repack(zoos.tar({"requirements.txt": text, "m.py": ""}), tmp_path)
    archives.complete(context, "FROM x", zoo, [])
    found = names(context)
    assert found["zoo/model_zoo/requirements.txt"][2] == text.encode()
    assert found["requirements/opt/edl-requirements/requirements.txt"][2] == b"numpy==1.2\n"


def test_a_header_that_asks_for_much_memory_is_refused(tmp_path: Path) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE):
        info = zoos.member("x", type=kind, size=1 << 34)
        with pytest.raises(BuilderError):
            repack(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048), tmp_path)


def test_a_damaged_header_in_the_middle_is_not_the_end(tmp_path: Path) -> None:
    content = bytearray(zoos.tar({"a.py": "a", "b.py": "b"}))
    content[1024 + 150] ^= 0xFF  # the checksum of the second header
    with pytest.raises(BuilderError, match="truncated or damaged"):
        repack(bytes(content), tmp_path)


def test_what_comes_is_no_larger_than_allowed(tmp_path: Path) -> None:
    def endless() -> object:
        while True:
            yield bytes(1 << 16)

    with pytest.raises(BuilderError) as refused:
        archives.receive(endless(), tmp_path / "a", 0, "", LIMITS)
    assert refused.value.failure.reason is Reason.LIMIT
    assert (tmp_path / "a").stat().st_size <= LIMITS.archive_nbytes


GOOD = zoos.tar({"a.py": "x = 1\n", "pkg/b.py": "y = 2\n" * 200, "requirements.txt": "toolz\n"})


@given(
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=8),
    st.integers(0, len(GOOD)),
    st.booleans(),
)
@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_damage_is_refused_or_harmless(
    damage: list[tuple[int, int]], length: int, zipped: bool
) -> None:
    """Fuzz: an archive with any bytes changed, cut anywhere."""
    content = bytearray(GOOD)
    for place, value in damage:
        content[place] = value
    _only_safe(gzip.compress(bytes(content[:length])) if zipped else bytes(content[:length]))


@given(st.binary(max_size=3000))
@settings(max_examples=examples(200), deadline=None)
def test_anything_at_all_is_refused_or_harmless(content: bytes) -> None:
    """Fuzz: bytes."""
    _only_safe(content)
    _only_safe(b"\x1f\x8b\x08" + content)


_names = st.one_of(
    st.sampled_from(["../x", "/x", "a/../../x", "a", "a/b", "./a", "requirements.txt", "a\0b"]),
    st.text(max_size=20),
)


@given(
    st.lists(
        st.tuples(_names, st.sampled_from(b"01234567LKSxg\0"), _names, st.integers(0, 3000)),
        max_size=8,
    )
)
@settings(max_examples=examples(300), deadline=None)
def test_hostile_entries_are_refused_or_harmless(
    entries: list[tuple[str, int, str, int]],
) -> None:
    """Fuzz: any names, kinds, targets and sizes."""
    content = b""
    for name, kind, target, size in entries:
        info = zoos.member(name, type=bytes([kind]), linkname=target, size=size)
        try:
            content += info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        except (ValueError, UnicodeError):
            continue
        content += bytes(size + -size % 512)
    _only_safe(content + bytes(1024))


def _only_safe(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            zoo, context = repack(content, folder)
        except BuilderError:
            return
        assert zoo.nbytes <= LIMITS.unpacked_nbytes
        with tarfile.open(context) as tar:
            for member in tar:
                assert member.isreg() or member.isdir() or member.issym()
                assert member.name == "zoo" or member.name.startswith("zoo/")
                assert ".." not in member.name.split("/")
                assert not member.linkname.startswith("/")
        # Nothing was written but the context.
        assert {path.name for path in folder.iterdir()} == {"archive", "context.tar"}
