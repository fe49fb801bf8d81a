"""Count the threads of a master while many workers wait for tasks.

Usage: ``python tools/master_threads.py [--workers 1000] [--seconds 15]``

One real master process serves a prediction job of a few tasks. Its workers are sleeping
processes; this program speaks for all of them over gRPC: registration, heartbeats at the master's
interval, and long polling for leases, as the workers of ``edl_worker`` do. Every worker opens a
connection to the port of direct parameter calls too, where the master has one. The result is one
line of JSON.

The program uses nothing of the master but its command line and messages, so that it runs
unchanged against other versions of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format

import recordio
from edl_proto.v1 import job_pb2, task_pb2, task_pb2_grpc

RECORDS = 64
LEASE_WAIT_S = 1.0
"""As ``edl_worker`` waits."""


def write_job(job_dir: Path, workers: int) -> None:
    data = job_dir / "data.recordio"
    job_dir.mkdir(parents=True)
    with recordio.Writer(str(data)) as writer:
        for number in range(RECORDS):
            writer.write(str(number).encode())
    spec = job_pb2.JobSpec(
        name="threads",
        type=job_pb2.PREDICT,
        output=str(job_dir / "predictions"),
        minibatch_size=RECORDS,
        records_per_task=RECORDS,
        workers=job_pb2.WorkersSpec(min=workers, max=workers),
        worker_grace_s=1.0,
    )
    _set(spec, "data", str(data))
    spec.failures.task_attempts = spec.failures.worker_crashes = 1000
    _set(spec.serving, "host", "127.0.0.1")
    if "metrics_auth" in spec.serving.DESCRIPTOR.fields_by_name:
        spec.serving.metrics_auth = "token"
    for name, value in {
        "platform": "processes",
        "trained_model": str(job_dir / "model"),
        "tensorboard_dir": str(job_dir / "tensorboard"),
        "snapshot_interval_s": 5.0,
    }.items():
        if name in spec.DESCRIPTOR.fields_by_name:  # not in every version
            setattr(spec, name, value)
    if "prediction" in spec.DESCRIPTOR.fields_by_name:
        spec.prediction.format = "recordio"
    (job_dir / "spec.json").write_text(json_format.MessageToJson(spec))


def _set(message: Any, name: str, value: str) -> None:
    """Set a field that holds one value in some versions and a list in others."""
    if isinstance(getattr(message, name), str):
        setattr(message, name, value)
    else:
        getattr(message, name).append(value)


def start_master(job_dir: Path) -> subprocess.Popen[bytes]:
    idle = job_dir / "idle"
    idle.write_text("#!/bin/sh\nexec sleep 600\n")
    idle.chmod(0o755)
    with (job_dir / "master.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "edl_master", "--job-dir", str(job_dir)],
            env={**os.environ, "EDL_PYTHON": str(idle), "GRPC_VERBOSITY": "NONE"},
            stdout=log,
            stderr=log,
        )


def address_of(job_dir: Path, master: subprocess.Popen[bytes]) -> str:
    file = job_dir / "master.json"
    while not file.exists():
        if master.poll() is not None:
            sys.exit((job_dir / "master.log").read_text())
        time.sleep(0.1)
    return str(json.loads(file.read_text())["address"])


class Counts:
    """Calls that were answered, by method, and those that failed."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {"Lease": 0, "Heartbeat": 0}
        self.failed = 0
        self.slowest_heartbeat_s = 0.0


async def act(stub: Any, number: int, counts: Counts) -> None:
    """One worker, until it is cancelled."""
    instance = f"simulated:{number}:1"
    # The field of the instance has had two names, but one number.
    field = task_pb2.RegisterRequest.DESCRIPTOR.fields_by_number[2].name
    named = {"worker_id": number, field: instance}
    registered = await stub.Register(
        task_pb2.RegisterRequest(**named, host="simulated", pid=1), timeout=120
    )
    incarnation = registered.incarnation
    await stub.Ready(task_pb2.ReadyRequest(**named, incarnation=incarnation), timeout=120)

    async def heartbeats() -> None:
        while True:
            began = time.monotonic()
            request = task_pb2.HeartbeatRequest(**named, incarnation=incarnation)
            try:
                await stub.Heartbeat(request, timeout=60)
                counts.calls["Heartbeat"] += 1
            except grpc.RpcError:
                counts.failed += 1
            took_s = time.monotonic() - began
            counts.slowest_heartbeat_s = max(counts.slowest_heartbeat_s, took_s)
            await asyncio.sleep(max(0.0, registered.heartbeat_every_s - took_s))

    beating = asyncio.create_task(heartbeats())
    try:
        while True:
            request = task_pb2.LeaseRequest(
                worker_id=number, incarnation=incarnation, wait_s=LEASE_WAIT_S, **_instance(named)
            )
            try:
                reply = await stub.Lease(request, timeout=60)
                counts.calls["Lease"] += 1
            except grpc.RpcError:
                counts.failed += 1
                continue
            if reply.HasField("lease"):
                await asyncio.sleep(3600)  # at work on the only task
            await asyncio.sleep(reply.wait.retry_in_s)
    finally:
        beating.cancel()


def _instance(named: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if name != "worker_id"}


async def simulate(address: str, pid: int, workers: int, seconds: float) -> dict[str, Any]:
    channels = [grpc.aio.insecure_channel(address) for _ in range(8)]
    stubs = [task_pb2_grpc.TasksStub(channel) for channel in channels]
    counts = Counts()
    acting = [
        asyncio.create_task(act(stubs[number % 8], number, counts)) for number in range(workers)
    ]
    most = 0
    deadline = time.monotonic() + 4 * seconds
    ready = 0
    while time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        ready = counts.calls["Lease"]
        most = max(most, threads_of(pid))
        if counts.calls["Heartbeat"] >= workers:
            break
    counts.slowest_heartbeat_s = 0.0
    before, began = dict(counts.calls), time.monotonic()
    while time.monotonic() - began < seconds:
        await asyncio.sleep(0.25)
        most = max(most, threads_of(pid))
    elapsed_s = time.monotonic() - began
    crashed = [task.exception() for task in acting if task.done()]
    for task in acting:
        task.cancel()
    assert ready or counts.calls["Lease"], f"no worker got an answer: {crashed[:1]}"
    return {
        "workers": workers,
        "threads": most,
        "leases_per_s": round((counts.calls["Lease"] - before["Lease"]) / elapsed_s, 1),
        "heartbeats_per_s": round((counts.calls["Heartbeat"] - before["Heartbeat"]) / elapsed_s, 1),
        "slowest_heartbeat_s": round(counts.slowest_heartbeat_s, 3),
        "failed_calls": counts.failed,
        "crashed_workers": len(crashed),
    }


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the threads of a master.")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15.0, help="of the measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        job_dir = Path(directory) / "jobs" / "threads"
        write_job(job_dir, options.workers)
        master = start_master(job_dir)
        try:
            address = address_of(job_dir, master)
            found = simulate(address, master.pid, options.workers, options.seconds)
            print(json.dumps(asyncio.run(found)))
        finally:
            master.terminate()
            try:
                master.wait(60)
            except subprocess.TimeoutExpired:
                master.kill()


if __name__ == "__main__":
    main()
