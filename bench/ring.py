"""All-reduce between machines next to its limit: members in network namespaces, with slow links.

Each member is a process of a secured job in a network namespace of its own, whose link sends and
receives so many bits per second. A step is a computation, for which the member sleeps, and an
all-reduce. The limit is the computation and the bytes that a ring must send over one link. Needs
root, for the namespaces. Delays cannot be set on a kernel without ``netem``; the links have none.

``EDL_BENCH_RUNS`` is the number of runs (5).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import ROOT, Measure
from edl_proto.identity.names import Role
from edl_runtime.identity.folder import IdentityFolder

RUNS = int(os.environ.get("EDL_BENCH_RUNS", "5"))
COMPUTE_S = 0.1
STEPS = 8
CASES = [(2, 1, 5), (4, 1, 5), (8, 1, 5), (2, 10, 25), (4, 10, 25), (2, 25, 25)]
"""Members, Gbit/s of each link, and megabytes of gradients."""
_BRIDGE = "edl-bench"


def measures() -> list[dict[str, Any]]:
    """The shares of the limit that rings reach."""
    if os.geteuid():
        print("  rings are measured by root only, in network namespaces", file=sys.stderr)
        return []
    return [_measure(*case).to_json() for case in CASES]


def _measure(size: int, gigabits: int, megabytes: int) -> Measure:
    sent = 2 * (size - 1) / size * megabytes * 1e6
    limit_s = COMPUTE_S + sent * 8 / (gigabits * 1e9)
    with _network(size, gigabits) as hosts:
        seconds = [_run(hosts, megabytes) for _ in range(RUNS)]
    return Measure(
        name=f"ring of {size}, {megabytes} MB of gradients, {gigabits} Gbit/s, TLS",
        value=1 / statistics.median(seconds),
        unit="steps/s",
        peer="computation and bytes over one link",
        peer_value=1 / limit_s,
        ratio=statistics.median(limit_s / each for each in seconds),
        target=0.85,
        runs=[(1 / each, 1 / limit_s) for each in seconds],
    )


@contextlib.contextmanager
def _network(size: int, gigabits: int) -> Iterator[list[str]]:
    """Network namespaces whose links meet in a bridge; yields their addresses."""
    hosts = [f"10.213.7.{number}" for number in range(1, size + 1)]
    limit = f"root tbf rate {gigabits}gbit burst 256kb latency 50ms"
    try:
        _ip(f"link add {_BRIDGE} type bridge")
        _ip(f"link set {_BRIDGE} up")
        for number, host in enumerate(hosts):
            inner = f"netns exec {_BRIDGE}-{number} "
            _ip(f"netns add {_BRIDGE}-{number}")
            _ip(f"link add edl-b{number} type veth peer name eth0 netns {_BRIDGE}-{number}")
            _ip(f"link set edl-b{number} master {_BRIDGE} up")
            _ip(f"{inner}ip addr add {host}/24 dev eth0")
            _ip(f"{inner}ip link set eth0 up")
            _ip(f"{inner}tc qdisc add dev eth0 {limit}")
            outer = ["tc", "qdisc", "add", "dev", f"edl-b{number}", *limit.split()]
            subprocess.run(outer, check=True)
        yield hosts
    finally:
        for number in range(size):  # links first: with a namespace they vanish later
            subprocess.run(["ip", "link", "delete", f"edl-b{number}"], check=False)
            subprocess.run(["ip", "netns", "delete", f"{_BRIDGE}-{number}"], check=False)
        subprocess.run(["ip", "link", "delete", _BRIDGE], check=False)


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def _run(hosts: list[str], megabytes: int) -> float:
    """Return the seconds of a step, by the slowest member."""
    with tempfile.TemporaryDirectory() as place:
        identities = IdentityFolder(Path(place) / "identity", "bench")
        identities.create([(Role.WORKER, number) for number in range(len(hosts))])
        members = [
            subprocess.Popen(
                [
                    *("ip", "netns", "exec", f"{_BRIDGE}-{number}", sys.executable),
                    *("-m", "bench.peers.ring_member", place, str(number), ",".join(hosts)),
                    *(str(megabytes), str(STEPS), str(COMPUTE_S)),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(len(hosts))
        ]
        said = [member.communicate(timeout=300)[0] for member in members]
    return max(float(json.loads(each)["step_s"]) for each in said)
