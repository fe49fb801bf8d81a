"""The files of one checkpoint: documents, arrays, and a manifest with the checksum of each.

A file that does not match its manifest is damaged. The manifest has its own checksum, too.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

# The same interface as zlib; its CRC-32 is about fourteen times as fast.
from zlib_ng import zlib_ng as zlib

from edl_master.core.metric_states import array_to_json
from edl_runtime.files import flush, open_regular, read_regular

Array: TypeAlias = npt.NDArray[Any]

DATA, LEDGER, PLANE = "data", "ledger", "plane"
"""Names of a checkpoint's documents; jobs on a trained model have no plane, and
checkpoints of earlier versions no description of the data."""

MANIFEST = "manifest.json"

DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""The exceptions that reading a damaged file may raise."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FORMAT = 1
_CRC_CHUNK = 16 << 20


class ArrayConvertible(Protocol):
    """An object that becomes an array when it is written."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array: ...


@runtime_checkable
class PiecewiseArray(Protocol):
    """An object that becomes a flat array piece by piece, once."""

    dtype: np.dtype[Any]
    size: int

    def pieces(self) -> Iterator[Array]: ...


@dataclass(frozen=True, slots=True)
class Moment:
    """A time by a clock that is never set, and by the wall clock.

    Attributes:
        boot: identifies the start of the machine.
        since_boot_ns: nanoseconds since then, sleep of the machine included.
        at_s: seconds since 1970; 0 where an earlier version of edl has not noted it.
    """

    boot: str
    since_boot_ns: int
    at_s: float = 0.0

    @classmethod
    def now(cls) -> Moment:
        """Return the present moment."""
        try:
            boot = _BOOT_ID.read_text().strip()
        except OSError:
            boot = ""
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return cls(boot, time.clock_gettime_ns(clock), time.time())


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a checkpoint.

    Attributes:
        documents: JSON-able values by name; those to write may hold arrays.
        arrays: arrays by name; read ones are in memory.
        name: of its directory, for messages.
        taken: when it was complete.
        parts: what other processes kept of the same moment.
        path: where it is; None while it is nowhere.
    """

    documents: Mapping[str, Any]
    arrays: Mapping[str, Array | ArrayConvertible | PiecewiseArray]
    name: str = ""
    taken: Moment = field(default_factory=lambda: Moment("", 0))
    parts: tuple[Checkpoint, ...] = ()
    path: Path | None = None


def read_checkpoint(path: Path, *, check: bool = False) -> Checkpoint:
    """Read the checkpoint in a directory.

    Args:
        check: its checksums, too; not needed where another process has found it to be whole.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: it is not whole.
    """
    return _read(path, path.name, check=check)


def described_files(manifest: Path) -> tuple[dict[str, int], list[str]]:
    """Return the sizes in bytes of the files that a manifest names, and its parts.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: it is damaged.
    """
    body = _unseal(read_regular(manifest))
    files = {_plain(file): int(described["bytes"]) for file, described in body["files"].items()}
    return files, [_plain(part) for part in body.get("parts", {})]


def taken_at(manifest: bytes) -> float:
    """Return when the checkpoint with this manifest was complete, in seconds since 1970.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is damaged.
    """
    return float(Moment(**_unseal(manifest)["taken"]).at_s)


def _plain(name: str) -> str:
    """Return the name, unless it leads out of its directory."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"{MANIFEST} contains the invalid name {name!r}")
    return name


def write_files(
    directory: Path, job: str, checkpoint: Checkpoint, parts: Sequence[str] = ()
) -> None:
    """Write a checkpoint's files and, last, the manifest that makes it complete.

    Args:
        directory: an existing directory.
        job: the name of the job.
        checkpoint: documents become JSON files, arrays ``.npy`` files.
        parts: names of files that parameter servers have written there.
    """
    files = {}
    for key, value in checkpoint.documents.items():
        files[f"{key}.json"] = _write(
            directory / f"{key}.json", json.dumps(value, default=array_to_json).encode()
        )
    arrays = {}
    for i, (key, array) in enumerate(checkpoint.arrays.items()):
        arrays[key] = f"array-{i:04d}.npy"
        files[arrays[key]] = _write_array(directory / arrays[key], array)
    body = {
        "format": _FORMAT,
        "job": job,
        "taken": asdict(Moment.now()),
        "files": files,
        "arrays": arrays,
    }
    if parts:
        # A part's own manifest has the checksums of its files.
        body["parts"] = {part: _describe(directory / part / MANIFEST) for part in parts}
    _write(directory / MANIFEST, _seal(body))
    flush(directory)


def _read(directory: Path, name: str, *, check: bool = True) -> Checkpoint:
    body = _unseal(read_regular(directory / MANIFEST))
    if body["format"] != _FORMAT:
        raise ValueError(f"format {body['format']} is unknown; this version reads format {_FORMAT}")
    array_files = {file: key for key, file in body["arrays"].items()}
    documents: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    for file, expected in body["files"].items():
        path = directory / _plain(file)
        if check and (found := _describe(path)) != expected:
            raise ValueError(f"{file} is now {found}, and was {expected}")
        if file in array_files:
            arrays[array_files[file]] = _load(path)
        else:
            documents[file.removesuffix(".json")] = _parse(read_regular(path))
    if missing := body["arrays"].keys() - arrays.keys():
        raise ValueError(f"arrays are missing: {', '.join(sorted(missing))}")
    parts = []
    for part, expected in body.get("parts", {}).items():
        _plain(part)
        if check and (found := _describe(directory / part / MANIFEST)) != expected:
            raise ValueError(f"{part} is now {found}, and was {expected}")
        parts.append(_read(directory / part, f"{name}/{part}", check=check))
    taken = Moment(**body["taken"])
    return Checkpoint(documents, arrays, name, taken, tuple(parts), directory)


def _load(path: Path) -> Array:
    """Load the array of a file; a large one is memory-mapped."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size <= _CRC_CHUNK:
            small: Array = np.load(file, allow_pickle=False)
            return small
    large: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return large


def _describe(path: Path) -> dict[str, int]:
    return {"bytes": path.stat().st_size, "crc32": _crc32_of(path)}


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _write(path: Path, content: bytes) -> dict[str, int]:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": len(content), "crc32": zlib.crc32(content)}


def _write_array(path: Path, array: Array | ArrayConvertible | PiecewiseArray) -> dict[str, int]:
    with path.open("wb") as file:
        if isinstance(array, PiecewiseArray):
            _save_pieces(file, array)
        else:
            np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    # Read back: the checksum is that of the file, not of what was meant to be in it.
    return _describe(path)


def _save_pieces(file: IO[bytes], array: PiecewiseArray) -> None:
    """Write the file that ``np.save`` would, in the memory of one piece."""
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": (array.size,),
    }
    np.lib.format.write_array_header_1_0(file, header)
    for piece in array.pieces():
        file.write(piece.view(np.uint8).data)


def _crc32_of(path: Path) -> int:
    crc = 0
    with open_regular(path) as file:
        for chunk in _chunks(file.read):
            crc = zlib.crc32(chunk, crc)
    return crc


def _chunks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while chunk := read(_CRC_CHUNK):
        yield chunk


def _canonical(body: Any) -> bytes:
    return json.dumps(body, sort_keys=True).encode()


def _seal(body: Mapping[str, Any]) -> bytes:
    return json.dumps({"crc32": zlib.crc32(_canonical(body)), "body": body}, indent=1).encode()


def _unseal(content: bytes) -> dict[str, Any]:
    sealed = _parse(content)
    if sealed["crc32"] != zlib.crc32(_canonical(sealed["body"])):
        raise ValueError(f"{MANIFEST} does not match its checksum")
    body: dict[str, Any] = sealed["body"]
    return body
