"""Archives: received within limits, checked entry by entry, repacked into a build's context.

Nothing is ever unpacked on this machine's file system: entries are copied from one tar file to the
other, so no name in an archive is ever opened here.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, cast

from edl_builder.core.archive import ArchiveLimits, Entry, EntryKind, EntryValidator, too_large
from edl_builder.core.content import Zoo, ZooFile
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.recipe import (
    CONTEXT_REQUIREMENTS,
    CONTEXT_RUNTIME,
    CONTEXT_ZOO,
    EPOCH,
    RUNTIME,
)
from edl_builder.core.recipe import REQUIREMENTS as REQUIREMENTS_FOLDER
from edl_builder.core.requirements import FILE as REQUIREMENTS
from edl_builder.core.requirements import read_requirements
from edl_runtime.image_names import IMAGE_ZOO

_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_MAX_EXTENSION_BYTES = 16 << 10
_MAX_EXTENSIONS = 8
"""Limit on consecutive headers that only extend the next one; archivers write two or three."""

_EXTENSIONS_NBYTES = 16 << 20
"""Limit on all extensions of an archive, which tarfile keeps in memory."""

_EXTENSIONS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
_MANY_DIGITS = re.compile(rb"[0-9]{256}")
"""The patterns that tarfile searches in an extension take quadratic time for these."""

_MAX_PADDING_BYTES = 1 << 20
"""Limit on the bytes after the end of an archive; tar pads its last record of some KiB."""


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
            if announced and nbytes > announced:
                raise _damage(f"{announced} bytes of archive were announced, but more arrived")
            digest.update(chunk)
            file.write(chunk)
    if announced and nbytes != announced:
        raise _damage(f"{announced} bytes of archive were announced, but {nbytes} arrived")
    if sha256 and digest.hexdigest() != sha256:
        raise _damage("the archive is not the one whose SHA-256 was announced")


def repack(
    archive: Path,
    context: Path,
    limits: ArchiveLimits,
    check: Callable[[], None] = lambda: None,
) -> Zoo:
    """Judge an archive and write its zoo into a tar file as the context has it.

    Args:
        archive: tar, or tar in gzip.
        context: the tar file to write, not yet with a Dockerfile.
        check: called between entries; may raise.

    Returns:
        What the zoo holds.

    Raises:
        BuilderError: the archive is damaged, unsafe or too large.
    """
    try:
        with (
            archive.open("rb") as raw,
            tarfile.open(context, "w", format=tarfile.PAX_FORMAT) as out,
        ):
            return _copy(_Content(raw), out, EntryValidator(limits), check)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, UnicodeError) as error:
        raise _damage(f"the archive cannot be read: {type(error).__name__}") from error


def complete(context: Path, dockerfile: str, zoo: Zoo, wheels: Iterable[Path]) -> None:
    """Add the recipe, the requirements and the worker to a context."""
    with tarfile.open(context, "a", format=tarfile.PAX_FORMAT) as out:
        _add(out, _info("Dockerfile", len(dockerfile.encode())), io.BytesIO(dockerfile.encode()))
        if zoo.requirements:
            name = f"{CONTEXT_REQUIREMENTS}{REQUIREMENTS_FOLDER}/{REQUIREMENTS}"
            _Folders(out).add_above(name)
            _add(out, _info(name, len(zoo.requirements)), io.BytesIO(zoo.requirements))
        folders = _Folders(out)
        for wheel in wheels:
            with wheel.open("rb") as file:
                name = f"{CONTEXT_RUNTIME}{RUNTIME}/{wheel.name}"
                folders.add_above(name)
                _add(out, _info(name, wheel.stat().st_size), file)


class _Content(io.RawIOBase):
    """The content of an archive, decompressed as it is read, so that nothing refused is unpacked.

    It is read forwards only, and no large piece at once, as damaged headers would ask for.
    """

    def __init__(self, archive: IO[bytes]) -> None:
        self._archive = archive
        self._is_zipped = archive.read(len(_GZIP)) == _GZIP
        archive.seek(0)
        self._gzip = zlib.decompressobj(wbits=31)
        self._packed = b""
        self._position = 0
        self._expected: int | None = None
        self._in_a_row = 0
        self._extensions_nbytes = 0
        self.newest = b""
        """What the last call of ``read`` has returned."""

    def expect(self, extension: int | None) -> None:
        """Announce what comes next: an extension of so many bytes, or something else.

        Raises:
            BuilderError: there are too many extensions, or they are too large.
        """
        self._expected = extension
        if extension is None:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        self._extensions_nbytes += extension
        if (
            self._in_a_row > _MAX_EXTENSIONS
            or not 0 <= extension <= _MAX_EXTENSION_BYTES
            or self._extensions_nbytes > _EXTENSIONS_NBYTES
        ):
            raise _damage("the archive has too many extension headers, or too large ones")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence or offset < self._position:
            raise tarfile.ReadError("an archive is read forwards")
        while self._position < offset and self._take(min(_CHUNK, offset - self._position)):
            pass
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _CHUNK:
            raise tarfile.HeaderError("a header is too large")
        pieces = []
        while size and (piece := self._take(size)):
            pieces.append(piece)
            size -= len(piece)
        self.newest = b"".join(pieces)
        if self._expected is not None:
            self._expected = None
            if _MANY_DIGITS.search(self.newest):
                raise tarfile.HeaderError("an extension is damaged")
            if b"GNU.sparse" in self.newest:
                raise BuilderError(
                    Reason.UNSAFE,
                    "the archive holds a sparse file",
                    where="archive",
                    remedy="Send plain files, folders, and links that stay within the zoo.",
                )
        return self.newest

    def check_padding(self) -> None:
        """Read what follows the end. Raises: BuilderError: it is much, or cut off."""
        end = self._position + _MAX_PADDING_BYTES
        while self._take(_CHUNK):
            if self._position > end:
                raise BuilderError(
                    Reason.LIMIT,
                    "the archive has data after its end",
                    where="archive",
                    remedy="Send one tar archive, as it is or in gzip.",
                )

    def _take(self, size: int) -> bytes:
        piece = self._inflate(size) if self._is_zipped else self._archive.read(size)
        self._position += len(piece)
        return piece

    def _inflate(self, size: int) -> bytes:
        piece = b""
        while not piece:
            if self._gzip.eof:
                # A gzip may have several parts, and padding after the last.
                rest = self._gzip.unused_data or self._archive.read(_CHUNK)
                if not rest.strip(b"\0"):
                    return b""
                self._packed, self._gzip = rest, zlib.decompressobj(wbits=31)
            self._packed = self._packed or self._archive.read(_CHUNK)
            try:
                piece = self._gzip.decompress(self._packed, size)
            except zlib.error as error:
                raise _damage(f"the archive's gzip is damaged: {error}") from error
            if not self._packed and not piece and not self._gzip.eof:
                raise _damage("the archive's gzip is truncated")
            self._packed = self._gzip.unconsumed_tail
        return piece


class _Header(tarfile.TarInfo):
    """A header that is checked before its content is read."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        # tarfile's own place for subclasses that look at the type.
        content = cast(_Content, tar.fileobj)
        content.expect(self.size if self.type in _EXTENSIONS else None)
        if self.type == tarfile.GNUTYPE_SPARSE:
            # The validator refuses the entry anyway, so its map is not read.
            return cast(tarfile.TarInfo, cast(Any, self)._proc_builtin(tar))
        return cast(tarfile.TarInfo, cast(Any, super())._proc_member(tar))


def _copy(
    content: _Content, out: tarfile.TarFile, authorize: EntryValidator, check: Callable[[], None]
) -> Zoo:
    files: list[ZooFile] = []
    requirements = b""
    total = 0
    # The folder is there even if the zoo is empty.
    folders = _Folders(out)
    folders.add(f"{CONTEXT_ZOO}{IMAGE_ZOO}")
    with tarfile.TarFile(
        fileobj=cast(IO[bytes], content),
        tarinfo=_Header,
        encoding="utf-8",
        errors="surrogateescape",
    ) as tar:
        for member in tar:
            check()
            path = authorize.accept(_entry(member))
            name = f"{CONTEXT_ZOO}{IMAGE_ZOO}/{path}"
            folders.add_above(name)
            if member.isdir():
                if path:
                    folders.add(name)
            elif member.issym():
                info = _info(name, 0)
                info.type, info.linkname = tarfile.SYMTYPE, member.linkname
                _add(out, info)
                if path == REQUIREMENTS:
                    raise BuilderError(
                        Reason.INVALID,
                        f"{REQUIREMENTS} is a symbolic link",
                        where=REQUIREMENTS,
                        remedy="Send the file itself.",
                    )
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
                    requirements = read_requirements(bytes(hashing.kept))
        # Also where a header is damaged, tarfile takes this for the end.
        if content.newest != bytes(tarfile.BLOCKSIZE):
            raise _damage("the archive is truncated or damaged")
        content.check_padding()
    if not files:
        raise BuilderError(
            Reason.INVALID,
            "the archive holds no files",
            where="archive",
            remedy="Pack the content of the model zoo's folder.",
        )
    return Zoo(tuple(files), total, requirements)


class _Folders:
    """Adds folders once, with those that an archive leaves out: the engine would date them."""

    def __init__(self, out: tarfile.TarFile) -> None:
        self._out = out
        self._added: set[str] = set()

    def add(self, name: str) -> None:
        self.add_above(name)
        if name not in self._added:
            self._added.add(name)
            _add(self._out, _info(name, 0, folder=True))

    def add_above(self, name: str) -> None:
        above, _, _ = name.rpartition("/")
        if above and above not in self._added:
            self.add(above)


class _Hashing(io.RawIOBase):
    """Hashes what is read through it."""

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
    elif member.isreg() and member.type != tarfile.GNUTYPE_SPARSE and member.sparse is None:
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
    info.mtime = EPOCH
    return info  # owner 0, one time for all: neither is content


def _add(out: tarfile.TarFile, info: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
    out.addfile(info, content)


def _damage(what: str) -> BuilderError:
    return BuilderError(
        Reason.INVALID,
        what,
        where="archive",
        remedy="Send a tar archive of the zoo's folder, as it is or in gzip.",
    )
