"""A worker whose connections break or fall silent, while it and its master live on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import ROOT, Edl, HeldTraining, eventually
from counting import check, train
from tcp_relay import TcpRelay

from edl_master.parameters.locked_shard import MAX_WAIT_S
from edl_proto.identity.credentials import Peer
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.transport.parameters import PARAMETERS, SHARD
from edl_proto.transport.raw_calls import RawService
from edl_proto.v1 import parameters_pb2
from edl_worker.config import Settings

TOTAL, EPOCHS = 12_007, 1
"""Held, this trains for ten minutes at least."""
NEAR, FAR = "127.0.0.1", "127.0.0.2"
"""The master is at the near address; connections to the far one go through relays."""


def facts(edl: Edl, kind: str) -> list[dict[str, str]]:
    lines = (edl.job_dir("w") / "events.jsonl").read_text().splitlines()
    return [e["facts"] for e in map(json.loads, lines) if e["kind"] == kind]


def count_events(edl: Edl, kind: str) -> int:
    """Count the events of a kind that concern worker 1."""
    return sum(found.get("worker") == "1" for found in facts(edl, kind))


def direct_port(address: str, service: RawService, peer: Peer) -> int:
    """Where a process takes direct connections."""
    with channels.connect(address, peer) as channel:
        reply = channel.unary_unary(f"/{service.name}/Open")(b"", timeout=200)
    return int(parameters_pb2.OpenReply.FromString(reply).direct_port)


def test_a_parameter_server_answers_before_a_worker_gives_a_call_up() -> None:
    """A call may wait for the first command and for another one; without an answer the server
    would count as lost."""
    assert Settings("127.0.0.1:1", 0).call_timeout_s > 2 * MAX_WAIT_S


@pytest.fixture
def far_worker(edl: Edl, tmp_path: Path) -> Iterator[Callable[[], tuple[TcpRelay, TcpRelay]]]:
    """Takes worker 1's place in job ``w`` by a worker that reaches the master through relays."""
    with ExitStack() as opened:

        def begin() -> tuple[TcpRelay, TcpRelay]:
            facts = json.loads((edl.job_dir("w") / "master.json").read_bytes())
            port = int(facts["address"].rpartition(":")[2])
            mine = edl.credentials("w", Role.WORKER, 1)
            direct = direct_port(facts["address"], PARAMETERS, mine.to(Role.MASTER))
            relays = TcpRelay((FAR, port), (NEAR, port)), TcpRelay((FAR, direct), (NEAR, direct))
            for relay in relays:
                opened.callback(relay.cut)
            log = opened.enter_context((tmp_path / "far-worker.log").open("w"))
            worker = subprocess.Popen(
                [
                    *(edl.env["EDL_PYTHON"], "-m", "edl_worker"),
                    *("--master", f"{FAR}:{port}"),
                    *("--worker-id", "1"),
                    *("--identity", str(edl.job_dir("w") / "identity/worker-1/identity.pem")),
                ],
                cwd=ROOT,
                env=edl.env,
                stderr=log,
            )
            opened.callback(worker.wait, 60)
            opened.callback(worker.kill)
            return relays

        yield begin
    print((tmp_path / "far-worker.log").read_text())


def test_a_worker_that_is_cut_off_is_missed_and_welcome_again(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    far_worker: Callable[[], tuple[TcpRelay, TcpRelay]],
    held: HeldTraining,
) -> None:
    """Its task is another's meanwhile; what it sends late, or again, changes nothing twice.

    Its connections break, fall silent, and fall silent for so long that it notices.
    """
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS, held=held),
        *("--name", "w", "--detach"),
    )
    # The master's own worker 1 first: the later one of two has the place.
    eventually(lambda: count_events(edl, "WorkerStarted") == 1, "worker 1", every=0.02)
    relays = far_worker()
    _, direct = relays
    eventually(lambda: count_events(edl, "WorkerReady") == 1, "the far worker is ready")
    faults = ((TcpRelay.cut, 0.0), (TcpRelay.block, 0.0), (TcpRelay.block, 16.0))
    for number, (begin, held_s) in enumerate(faults, 1):
        before = direct.carried
        eventually(
            lambda before=before: direct.carried > before + 150_000,
            "it trains over a direct connection",
        )
        for relay in relays:
            begin(relay)
        eventually(
            lambda number=number: count_events(edl, "WorkerLost") == number,
            "it is missed",
            every=0.02,
        )
        time.sleep(held_s)  # how long the fault lasts
        for relay in relays:
            relay.restore()
        eventually(
            lambda number=number: count_events(edl, "WorkerRecovered") == number,
            "it sends messages again",
        )

    held.release()
    edl("wait", "w")
    status = edl.status("w")
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    check(output, TOTAL, EPOCHS)
    assert status["worker_failures"] == 0
    assert count_events(edl, "WorkerStarted") == 2, "the master has not started it again"


SHIM = """
import dataclasses, json, pathlib, runpy, sys, time
from edl_worker.transport import parameter_servers

ready = pathlib.Path({ready!r})
while not ready.exists():
    time.sleep(0.05)
begin = parameter_servers.ParameterServerClient.__init__


def over_relays(self, master, shards, *others):
    shards = list(shards)
    address = shards[1].address.replace({here!r}, {far!r})
    shards[1] = dataclasses.replace(shards[1], address=address)
    begin(self, master, shards, *others)


parameter_servers.ParameterServerClient.__init__ = over_relays
sys.argv = sys.argv[sys.argv.index("edl_worker"):]
runpy.run_module("edl_worker", run_name="__main__", alter_sys=True)
"""
"""Worker 1, which reaches parameter server 1 through relays, once these are there."""


@pytest.fixture
def relayed(edl: Edl, tmp_path: Path) -> Iterator[Callable[[], list[TcpRelay]]]:
    """Puts relays between worker 1 and parameter server 1 of job ``w``."""
    ready = tmp_path / "relays-are-there"
    shim = tmp_path / "shim.py"
    shim.write_text(SHIM.format(ready=str(ready), here=NEAR, far=FAR))
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f'*"edl_worker "*"--worker-id 1"*) exec {sys.executable} {shim} "$@" ;;\n'
        f'*) exec {edl.env["EDL_PYTHON"]} "$@" ;;\n'
        "esac\n"
    )
    python.chmod(0o755)
    edl.env["EDL_PYTHON"] = str(python)
    with ExitStack() as opened:

        def begin() -> list[TcpRelay]:
            servers = eventually(
                lambda: [
                    one["address"]
                    for one in edl.written_status("w").get("servers", [])
                    if one["state"] == "serving"
                ][1:],
                "the servers are there",
            )
            port = int(servers[0].rpartition(":")[2])
            mine = edl.credentials("w", Role.WORKER, 1)
            direct = direct_port(servers[0], SHARD, mine.to(Role.SERVER, 1))
            relays = [TcpRelay((FAR, each), (NEAR, each)) for each in (port, direct) if each]
            for relay in relays:
                opened.callback(relay.cut)
            ready.touch()
            return relays

        yield begin


def test_a_worker_that_cannot_reach_one_server_says_which_and_loses_nothing(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    relayed: Callable[[], list[TcpRelay]],
    held: HeldTraining,
) -> None:
    """A short break is waited for. After a long one another has its task, and no failure counts."""
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS, held=held),
        *("--parameter-servers", "2", "--name", "w", "--detach"),
    )
    relays = relayed()

    def count_bytes() -> int:
        return sum(relay.carried for relay in relays)

    def restore(whose: str) -> None:
        before = count_bytes()
        for relay in relays:
            relay.restore()
        eventually(lambda: count_bytes() > before + 100_000, f"{whose} trains again")

    log = edl.job_dir("w") / "logs" / "worker-1.log"
    eventually(lambda: count_bytes() > 150_000, "worker 1 trains through the relays")
    for relay in relays:
        relay.cut()
    time.sleep(3.0)  # how long the fault lasts
    restore("it")
    assert "parameter server 1 at " in log.read_text()
    assert count_events(edl, "WorkerStarted") == 1, "it has stayed"

    for relay in relays:
        relay.block()
    eventually(lambda: count_events(edl, "WorkerExited") == 1, "it leaves by itself")
    restore("its next instance")

    held.release()
    edl("wait", "w")
    status = edl.status("w")
    assert int(status["records_trained"]) == EPOCHS * TOTAL
    check(output, TOTAL, EPOCHS)
    assert status["worker_failures"] == 0
    assert "parameter-server-1-lost" in (edl.job_dir("w") / "events.jsonl").read_text()
    text = log.read_text()
    assert "PARAMETER_SERVER_LOST" in text or "could not be reached" in text
