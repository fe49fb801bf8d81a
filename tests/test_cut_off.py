"""A worker whose connections break or fall silent, while it and its master live on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Edl, eventually
from test_exactly_once import EPOCHS, arguments, counts
from wires import Wire

from edl_proto import channels
from edl_proto.parameters import SERVICE
from edl_proto.v1 import parameters_pb2

TOTAL = 12_007
HERE, FAR = "127.0.0.1", "127.0.0.2"
"""The master is here; what goes to it by the other address travels over wires."""


def facts(edl: Edl, kind: str) -> list[dict[str, str]]:
    lines = (edl.job_dir("w") / "events.jsonl").read_text().splitlines()
    return [e["facts"] for e in map(json.loads, lines) if e["kind"] == kind]


def happened(edl: Edl, kind: str) -> int:
    """How often to worker 1."""
    return sum(found.get("worker") == "1" for found in facts(edl, kind))


def parameters_port(address: str) -> int:
    """Where the master takes direct connections."""
    with channels.connect(address) as channel:
        reply = channel.unary_unary(f"/{SERVICE}/Open")(b"", timeout=60)
    return int(parameters_pb2.OpenReply.FromString(reply).direct_port)


@pytest.fixture
def far_worker(edl: Edl, tmp_path: Path) -> Iterator[Callable[[], tuple[Wire, Wire]]]:
    """Takes worker 1's place in job ``w`` by a worker that reaches the master over wires."""
    with ExitStack() as opened:

        def begin() -> tuple[Wire, Wire]:
            facts = json.loads((edl.job_dir("w") / "master.json").read_bytes())
            port = int(facts["address"].rpartition(":")[2])
            direct = parameters_port(facts["address"])
            wires = Wire((FAR, port), (HERE, port)), Wire((FAR, direct), (HERE, direct))
            for wire in wires:
                opened.callback(wire.cut)
            log = opened.enter_context((tmp_path / "far-worker.log").open("w"))
            worker = subprocess.Popen(
                [
                    *(sys.executable, "-m", "edl_worker", "--master", f"{FAR}:{port}"),
                    *("--worker-id", "1"),
                ],
                cwd=ROOT,
                env=edl.env,
                stderr=log,
            )
            opened.callback(worker.wait, 60)
            opened.callback(worker.kill)
            return wires

        yield begin
    print((tmp_path / "far-worker.log").read_text())


@pytest.mark.parametrize(
    ("what", "held_s"),
    [("cut", 0.0), ("swallow", 0.0), ("swallow", 16.0)],
    ids=["cut", "silent", "silent-until-keepalive"],
)
def test_a_worker_that_is_cut_off_is_missed_and_welcome_again(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    far_worker: Callable[[], tuple[Wire, Wire]],
    what: str,
    held_s: float,
) -> None:
    """Its task is another's meanwhile; what it sends late, or again, changes nothing twice."""
    output = tmp_path / "model"
    edl(*arguments(numbered(TOTAL), TOTAL, output, "--num-workers", "2", "--name", "w", "--detach"))
    # The master's own worker 1 first: the later one of two has the place.
    eventually(lambda: happened(edl, "WorkerStarted") == 1, "worker 1", every=0.02)
    wires = far_worker()
    _, direct = wires
    eventually(lambda: happened(edl, "WorkerReady") == 1, "the far worker is ready")
    before = direct.carried
    eventually(lambda: direct.carried > before + 1_000_000, "it trains over a direct connection")

    for wire in wires:
        getattr(wire, what)()
    eventually(lambda: happened(edl, "WorkerLost") == 1, "it is missed", every=0.02)
    time.sleep(held_s)  # how long the fault lasts
    for wire in wires:
        wire.mend()
    eventually(lambda: happened(edl, "WorkerBack") == 1, "it is heard again")

    edl("wait", "w", timeout=300)
    status = edl.status("w")
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    np.testing.assert_array_equal(counts(output), EPOCHS)
    assert status["worker_failures"] == 0
    assert happened(edl, "WorkerStarted") == 2, "nobody had to start it again"
