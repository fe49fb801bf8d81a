"""Memory that TensorFlow would have given back to the system is kept."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from recordio import allocator

# Memory in use says it, not faults of pages: huge pages are few, and a small block may find a hole
# in the heap, whatever the allocator was told. No hole is as large as this block.
RETURNED = """
import os
from recordio import tfdata

dataset = tfdata.from_blocks(lambda: iter([[b"a"]]))
assert [record.numpy() for record in dataset] == [b"a"]


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


block = bytearray(24 << 20)
held = resident_bytes()
del block
print(held - resident_bytes())
"""


def returned_bytes(**environ: str) -> int:
    """Bytes of a freed block of 24 MiB that the allocator returns to the system."""
    done = subprocess.run(
        [sys.executable, "-c", RETURNED],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the GNU C library's")
def test_freed_memory_is_used_again() -> None:
    pytest.importorskip("tensorflow")
    assert returned_bytes() < 4 << 20
    # What TensorFlow chooses, and what a user does.
    assert returned_bytes(MALLOC_TRIM_THRESHOLD_="131072") >= 20 << 20


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_chosen_stays(name: str) -> None:
    assert not allocator.keep_freed_memory({name: "1"})
