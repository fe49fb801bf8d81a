"""Memory that TensorFlow would have given back to the system is kept."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from recordio import allocator

FAULTS = """
import resource
from recordio import tfdata

dataset = tfdata.from_blocks(lambda: iter([[b"a"]]))
assert [record.numpy() for record in dataset] == [b"a"]


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


bytearray(1 << 20)
before = faults()
for _ in range(200):
    bytearray(1 << 20)
print(faults() - before)
"""


def faults(**environ: str) -> int:
    """Pages that the system had to fetch for 200 times the same mebibyte."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
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
    assert faults() < 2_000
    # 256 pages each time: what TensorFlow chooses, and what a user does.
    assert faults(MALLOC_TRIM_THRESHOLD_="131072") > 20_000


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_chosen_stays(name: str) -> None:
    assert not allocator.keep_freed_memory({name: "1"})
