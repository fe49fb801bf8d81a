"""Archives: received within limits, checked entry by entry, repacked into a build's context.

Nothing is ever unpacked on this machine's file system: entries travel from one tar file to the
other, so no name in an archive is ever opened here.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, cast

from edl_builder.core.archive import ArchiveLimits, Entry, EntryKind, EntryValidator, too_large
from edl_builder.core.content import Zoo, ZooFile
from edl_builder.core.names import BuilderError, Reason
from edl_builder.core.recipe import CONTEXT_REQUIREMENTS, CONTEXT_RUNTIME, CONTEXT_ZOO
from edl_builder.core.requirements import FILE as REQUIREMENTS
from edl_builder.core.requirements import check_requirements

_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_LARGEST_HEADER = 1 << 20
"""Bytes of a header for long names; tarfile reads it in one piece."""

_MOST_OVERHEAD = 2048
"""Bytes of tar around one entry: its header, a header for its name, padding."""


def receive(
    chunks: Iterable[bytes], path: Path, announced: int, sha256: str, limits: ArchiveLimits
) -> None:
    """Write an archive as it comes in.

    Raises:
        BuilderError: larger than allowed, of another size than announced, or damaged.
    """
    digest, nbytes = hashlib.sha256(), 0
    with path.open("xb") as file:
        for chunk in chunks:
            nbytes += len(chunk)
            if nbytes > limits.archive_nbytes:
                raise too_large(limits.archive_nbytes, "archive")
            digest.update(chunk)
            file.write(chunk)
    if announced and nbytes != announced:
        raise _damaged(f"{announced} bytes of archive were announced, {nbytes} came")
    if sha256 and digest.hexdigest() != sha256:
        raise _damaged("the archive is not the one whose SHA-256 was announced")


def repack(
    archive: Path,
    folder: Path,
    limits: ArchiveLimits,
    check: Callable[[], None] = lambda: None,
) -> tuple[Zoo, Path]:
    """Judge an archive and write its zoo into a tar file as the context has it.

    Args:
        archive: tar, or tar in gzip.
        folder: where the result and what is needed in between lie.
        check: called between entries; may raise.

    Returns:
        What the zoo holds, and the tar file (not yet with a Dockerfile).

    Raises:
        BuilderError: the archive is damaged, unsafe or too large.
    """
    plain = _unzip(archive, folder / "plain.tar", limits)
    context = folder / "context.tar"
    try:
        with plain.open("rb") as raw, tarfile.open(context, "w", format=tarfile.PAX_FORMAT) as out:
            zoo = _copy(_Bounded(raw), out, EntryValidator(limits), check)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, UnicodeError) as error:
        raise _damaged(f"the archive cannot be read: {type(error).__name__}") from error
    finally:
        if plain != archive:
            plain.unlink(missing_ok=True)
    return zoo, context


def complete(context: Path, dockerfile: str, zoo: Zoo, wheels: Iterable[Path]) -> None:
    """Add the recipe, the requirements and the worker to a context."""
    with tarfile.open(context, "a", format=tarfile.PAX_FORMAT) as out:
        _add(out, _info("Dockerfile", len(dockerfile.encode())), io.BytesIO(dockerfile.encode()))
        if zoo.requirements:
            name = f"{CONTEXT_REQUIREMENTS}/{REQUIREMENTS}"
            _add(out, _info(name, len(zoo.requirements)), io.BytesIO(zoo.requirements))
        for wheel in wheels:
            with wheel.open("rb") as file:
                _add(out, _info(f"{CONTEXT_RUNTIME}/{wheel.name}", wheel.stat().st_size), file)


def _unzip(archive: Path, plain: Path, limits: ArchiveLimits) -> Path:
    """The archive without its compression, which may not hide more than is allowed."""
    most = limits.unpacked_nbytes + limits.files * _MOST_OVERHEAD + _LARGEST_HEADER
    with archive.open("rb") as raw:
        if raw.read(len(_GZIP)) != _GZIP:
            return archive
        raw.seek(0)
        with plain.open("wb") as out:
            nbytes = 0
            unzip = zlib.decompressobj(wbits=31)
            data, whole = b"", False
            try:
                while data or (data := raw.read(_CHUNK)):
                    piece = unzip.decompress(data, _CHUNK)
                    data, whole = unzip.unconsumed_tail, unzip.eof
                    nbytes += len(piece)
                    if nbytes > most:
                        raise too_large(limits.unpacked_nbytes, "unpacked zoo")
                    out.write(piece)
                    if unzip.eof:
                        data = unzip.unused_data
                        unzip = zlib.decompressobj(wbits=31)
                        if data and not data.strip(b"\0"):
                            data = b""
            except zlib.error as error:
                raise _damaged(f"the archive's gzip is damaged: {error}") from error
            if not whole:
                raise _damaged("the archive's gzip is cut off")
    return plain


class _Bounded(io.RawIOBase):
    """A file of which no large piece can be read at once, as damaged headers would ask for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0 or size > _LARGEST_HEADER:
            raise tarfile.HeaderError("a header is too large")
        return self._file.read(size)


def _copy(
    raw: _Bounded, out: tarfile.TarFile, authorize: EntryValidator, check: Callable[[], None]
) -> Zoo:
    files: list[ZooFile] = []
    requirements = b""
    total = 0
    # The folder is there even if the zoo is empty.
    _add(out, _info(CONTEXT_ZOO, 0, folder=True))
    with tarfile.open(fileobj=raw, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            check()
            path = authorize.accept(_entry(member))
            name = f"{CONTEXT_ZOO}/{path}"
            if member.isdir():
                if path:
                    _add(out, _info(name, 0, folder=True))
            elif member.issym():
                info = _info(name, 0)
                info.type, info.linkname = tarfile.SYMTYPE, member.linkname
                _add(out, info)
                files.append(ZooFile(path, target=member.linkname))
            else:
                executable = bool(member.mode & 0o100)
                source = tar.extractfile(member)
                assert source is not None
                hashing = _Hashing(source, keep=path == REQUIREMENTS)
                info = _info(name, member.size, executable=executable)
                _add(out, info, cast(IO[bytes], hashing))
                files.append(ZooFile(path, hashing.sha256.hexdigest(), executable))
                total += member.size
                if path == REQUIREMENTS:
                    requirements = bytes(hashing.kept)
                    check_requirements(requirements)
        # Also where a header is damaged, tarfile takes this for the end.
        raw.seek(tar.offset)
        if raw.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise _damaged("the archive is cut off or damaged")
    if not files:
        raise BuilderError(
            Reason.INVALID,
            "the archive holds no files",
            where="archive",
            remedy="Pack the content of the model zoo's folder.",
        )
    return Zoo(tuple(files), total, requirements)


class _Hashing(io.RawIOBase):
    """Reads through, hashing what passes."""

    def __init__(self, file: IO[bytes], keep: bool) -> None:
        self._file = file
        self._keep = keep
        self.kept = bytearray()
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        piece = self._file.read(size if size is not None and 0 <= size < _CHUNK else _CHUNK)
        self.sha256.update(piece)
        if self._keep:
            if len(self.kept) > _CHUNK:
                raise BuilderError(Reason.LIMIT, f"{REQUIREMENTS} is too large", where=REQUIREMENTS)
            self.kept += piece
        return piece


def _entry(member: tarfile.TarInfo) -> Entry:
    if member.issym():
        kind = EntryKind.SYMLINK
    elif member.islnk():
        kind = EntryKind.HARDLINK
    elif member.isdir():
        kind = EntryKind.FOLDER
    elif member.isreg() and member.sparse is None:
        kind = EntryKind.FILE
    else:
        kind = EntryKind.OTHER
    return Entry(member.name, kind, member.size if kind is EntryKind.FILE else 0, member.linkname)


def _info(
    name: str, nbytes: int, *, folder: bool = False, executable: bool = False
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = nbytes
    info.mode = 0o755 if folder or executable else 0o644
    info.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    return info  # owner 0, time 0: neither is content


def _add(out: tarfile.TarFile, info: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
    out.addfile(info, content)


def _damaged(what: str) -> BuilderError:
    return BuilderError(
        Reason.INVALID,
        what,
        where="archive",
        remedy="Send a tar archive of the zoo's folder, as it is or in gzip.",
    )
