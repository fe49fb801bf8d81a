"""What tables of 10⁸ rows cost a group of four parameter servers, which have a quarter each.

One server's quarter lives in this process, with rows of one number and SGD, so that the index is
most of the memory. ``EDL_BENCH_ROWS`` is the number of rows of all servers (10⁸, for which a server
needs 3 GB; more as rows are restored).

- growth: the time of a push that makes rows, at the end next to the beginning;
- memory: bytes for a row next to what ``docs/embedding.md`` promises at most;
- snapshot: memory that writing it takes, and restoring it besides the rows themselves, next to the
  rows;
- expiry: the longest push while rows expire next to the median push before;
- skew: the ids of minibatches of Zipf 1.2, each once as they are sent, of the busiest server next
  to the mean; with 4 servers and, simulated, with 64.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Measure
from edl_master.adapters.checkpoint_files import PLANE, Checkpoint
from edl_master.adapters.checkpoints import write_part
from edl_master.core.identifiers import TaskKey, TaskType, Token, Version
from edl_master.core.parameters.commands import CommitPush
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Async
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.push import Gradient
from edl_master.core.parameters.shard_layout import reshard, shard_layouts
from edl_master.core.parameters.store import ParameterStore
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_master.core.parameters.tables.payloads import RowPayload
from edl_master.recovery.restore import parts_of
from edl_proto.transport.row_placement import server_of

ROWS = int(float(os.environ.get("EDL_BENCH_ROWS", "1e8")))
SERVERS, PUSH, MAX_AGE = 4, 1 << 17, 16
PROMISED = 4 + 12 + 34
"""Bytes of a row of one number at most."""
OPTIMIZER = parse_optimizer({"class_name": "SGD", "config": {"learning_rate": 0.1}})


def _layout(max_age: int = 0) -> Layout:
    table = TableSpec("rows", 1, Initial(Distribution.UNIFORM, 0.0, 0.05), 1, max_age=max_age)
    return Layout((Variable("w", (1,), "float32", True),), (table,))


class Server:
    """The part of one server.

    Args:
        store: the values.
    """

    def __init__(self, store: ParameterStore) -> None:
        self.store = store

    @classmethod
    def begin(cls, max_age: int = 0) -> Server:
        store = ParameterStore(_layout(max_age), OPTIMIZER, Async())
        store.warm_up()
        store.initialize(bytes(4))
        return cls(store)

    def push(self, ids: np.ndarray[Any, Any]) -> float:
        """Change the rows of ids; return the seconds of processor time."""
        payload = RowPayload((0,), (ids.size,), ids.data, np.ones(ids.size, np.float32).data)
        version = Version(self.store.version + 1)
        commit = CommitPush(TaskKey(TaskType.TRAINING, 0, 0), Token(1), 0, 1, version)
        begun = time.thread_time()
        prepared = self.store.prepare(Gradient(bytes(4), None, payload))
        self.store.make_ready(prepared)
        self.store.apply(prepared, commit)
        return time.thread_time() - begun

    def __len__(self) -> int:
        return self.store.tables().rows["rows"]


def _ids(first: int, count: int) -> np.ndarray[Any, Any]:
    """Distinct ids, scattered over all numbers of 64 bits."""
    return (np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(
        np.int64
    )


def _resident() -> int:
    """Bytes of memory that this process has now, without pages of files."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon:")).split()[1])


class _Peak:
    """The most memory that this process had while the context lasted."""

    def __enter__(self) -> _Peak:
        self._over, self.nbytes = False, _resident()
        self._thread = ThreadPoolExecutor(1)
        self._watch = self._thread.submit(self._look)
        return self

    def _look(self) -> None:
        while not self._over:
            self.nbytes = max(self.nbytes, _resident())
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._watch.result()
        self._thread.shutdown()


def measures() -> list[dict[str, Any]]:
    share = ROWS // SERVERS
    empty = Server.begin()
    empty.push(_ids(0, PUSH))  # loops are compiled
    floor = _resident()
    server = Server.begin()
    times = [server.push(_ids(at, PUSH)) for at in range(0, share, PUSH)]
    grown = _resident() - floor
    tenth = max(1, len(times) // 10)
    first, last = sum(times[:tenth]) / tenth, sum(times[-tenth:]) / tenth
    label = f"{len(server):,} rows, a quarter of {ROWS:.0e}"
    found = [
        _measure(f"making rows, the last tenth of {label}", last, "s", "the first tenth", first),
        _measure(f"memory of {label}", grown / len(server), "B", "promised", PROMISED),
    ]
    with tempfile.TemporaryDirectory() as place:
        path, before = Path(place, "part"), _resident()
        begun = time.perf_counter()
        with _Peak() as peak:
            snapshot = server.store.snapshot()
            write_part(path, "bench", Checkpoint({PLANE: snapshot.meta}, snapshot.arrays))
        written_s = time.perf_counter() - begun
        found.append(
            _measure("memory to write it", (peak.nbytes - before) / 1e6, "MB", "rows", grown / 1e6)
        )
        rows = len(server)
        del snapshot, server
        begun = time.perf_counter()
        with _Peak() as peak:
            (part,) = shard_layouts(_layout(), 1, OPTIMIZER)
            saved = reshard(
                parts_of(path), _layout(), part, OPTIMIZER, lambda ids: np.ones(ids.size, bool)
            )
            again = Server(ParameterStore.restore(saved, OPTIMIZER, Async()))
        restored_s = time.perf_counter() - begun
        assert len(again) == rows
        extra = peak.nbytes - floor - grown
        found.append(_measure("memory to restore it", extra / 1e6, "MB", "rows", grown / 1e6))
        print(f"  written in {written_s:.1f} s, restored in {restored_s:.1f} s", file=sys.stderr)
        del again, saved
    return [*(each.to_json() for each in [*found, _expire(share), *map(_skew, (4, 64))])]


def _expire(rows: int) -> Measure:
    """Let most rows become too old while others are used."""
    server = Server.begin(MAX_AGE)
    for at in range(0, rows, PUSH):
        server.push(_ids(at, PUSH))
    most, used = len(server), _ids(1 << 40, PUSH)
    quiet = statistics.median(server.push(used) for _ in range(4))
    longest = max(server.push(used) for _ in range(2 * MAX_AGE))
    assert len(server) == PUSH, f"{len(server)} of {most} rows are left"
    return _measure("the longest push while rows expire", longest, "s", "a push", quiet)


def _skew(servers: int) -> Measure:
    random = np.random.default_rng(0)
    shares = []
    for _ in range(20):
        ids = np.unique(random.zipf(1.2, 512 * 26).astype(np.int64))
        owned = np.bincount(server_of(ids, servers), minlength=servers)
        shares.append((float(owned.max()), float(owned.mean())))
    busiest, mean = (statistics.mean(each) for each in zip(*shares, strict=True))
    return _measure(f"ids of Zipf 1.2, busiest of {servers} servers", busiest, "", "mean", mean)


def _measure(name: str, value: float, unit: str, peer: str, other: float) -> Measure:
    print(f"  {name}: {value:,.6g} {unit}; {peer}: {other:,.6g}", file=sys.stderr, flush=True)
    return Measure(name, value, unit, peer, other, other / value, None, [(other, value)])
