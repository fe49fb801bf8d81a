"""A master process for tests of the client: the service Job over gRPC, and a job's directory.

It trains nothing. $EDL_SCENARIO names what it does:

    quick       works through its records and succeeds
    endless     works until it is stopped
    fail        finds, after a while, that the model file breaks the contract
    early       says in status.json what is wrong, and ends before it listens
    crash       ends with a traceback before it listens
    mute        never listens
    dying       works once; when it is started again, it crashes before it listens
    unlucky     is killed before it listens, twice; then as endless
    late        is killed before it listens, and then never listens
    deaf        listens and lives, but answers no call
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format

from edl_proto.errors import ErrorCode
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.transport import channels
from edl_proto.v1 import error_pb2, job_pb2, job_pb2_grpc
from edl_runtime.files import replace_file
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.identity.page_key import PageKey
from edl_runtime.local import job_directory, process_identity
from edl_runtime.local.parent_process import end_with_parent
from edl_runtime.timestamps import rfc3339

RECORDS = 1000
STEP = 250
TICK_S = 0.05
FINAL = (job_pb2.SUCCEEDED, job_pb2.FAILED, job_pb2.CANCELLED)


def now() -> str:
    return rfc3339(time.time())


def span(**facts: Any) -> str:
    return json.dumps({"at": time.time(), "seconds": 1.0, "worker": 0, **facts}) + "\n"


def write_timeline(directory: Path) -> None:
    spans = (span(outcome="done", task="training/1/0"), span(phases={"compute": 1.0}))
    (directory / job_directory.TIMELINE).write_text("".join(spans))


class FakeJob(job_pb2_grpc.JobServicer):
    def __init__(self, directory: Path, scenario: str) -> None:
        self.directory = directory
        self.scenario = scenario
        self.spec = json_format.Parse(
            (directory / job_directory.SPEC).read_text(), job_pb2.JobSpec()
        )
        self.lock = threading.RLock()
        self.events: list[job_pb2.Event] = []
        self.read = threading.Event()  # a client has read the final status
        self.began = time.monotonic()
        self.workers: list[subprocess.Popen[bytes]] = []
        train = self.spec.type == job_pb2.TRAIN
        epochs = self.spec.training.num_epochs if train else 0
        self.status = job_pb2.JobStatus(
            name=self.spec.name,
            type=self.spec.type,
            state=job_pb2.STARTING,
            output=self.spec.output,
            started_at=now(),
            workers_wanted=self.spec.workers,
        )
        progress = self.status.progress
        progress.records_total = RECORDS * max(1, epochs)
        progress.num_epochs, progress.epoch = epochs, min(1, epochs)
        progress.loss, progress.eta_s = math.nan, -1.0

    # --- the Job service ---------------------------------------------------------------

    def GetStatus(self, request: Any, context: Any) -> job_pb2.JobStatus:
        if self.scenario == "deaf":
            time.sleep(3600)
        with self.lock:
            copy = job_pb2.JobStatus()
            copy.CopyFrom(self.status)
            return copy

    def WatchEvents(self, request: job_pb2.WatchEventsRequest, context: Any) -> Any:
        seen = request.after
        while True:
            with self.lock:
                fresh = self.events[seen:]
                over = self.status.state in FINAL
            yield from fresh
            seen += len(fresh)
            if not request.follow or over:
                return
            time.sleep(TICK_S)

    def ReadTimeline(self, request: Any, context: Any) -> Any:
        path = self.directory / job_directory.TIMELINE
        going_on = span(outcome="unfinished", task="training/1/1")
        lines = path.read_bytes() if path.exists() else b""
        yield job_pb2.TimelineChunk(lines=lines + going_on.encode())

    def Scale(self, request: job_pb2.ScaleRequest, context: Any) -> job_pb2.ScaleReply:
        with self.lock:
            self.status.workers_wanted.CopyFrom(request.workers)
            self._add_event("Scaled", f"{request.workers.min} to {request.workers.max} workers")
        return job_pb2.ScaleReply(workers=request.workers)

    def SetLearningRate(
        self, request: job_pb2.SetLearningRateRequest, context: Any
    ) -> job_pb2.SetLearningRateReply:
        with self.lock:
            self.status.learning_rate = request.learning_rate
            self._add_event("LearningRateSet", f"{request.learning_rate}")
        return job_pb2.SetLearningRateReply()

    def Stop(self, request: job_pb2.StopRequest, context: Any) -> job_pb2.StopReply:
        with self.lock:
            if self.status.state not in FINAL:
                self.status.error.code = ErrorCode.STOPPED
                self.status.error.what = f"the job was stopped: {request.reason}"
                self.status.state = job_pb2.STOPPING
        return job_pb2.StopReply()

    def Acknowledge(self, request: Any, context: Any) -> job_pb2.AcknowledgeReply:
        (self.directory / "acknowledged").touch()
        self.read.set()
        return job_pb2.AcknowledgeReply()

    # --- the job -----------------------------------------------------------------------

    def _add_event(self, kind: str, message: str, severity: str = "info") -> None:
        event = job_pb2.Event(
            number=len(self.events) + 1,
            at=now(),
            at_s=time.monotonic() - self.began,
            kind=kind,
            severity=severity,
            message=message,
        )
        self.events.append(event)
        line = json_format.MessageToJson(event, indent=None, preserving_proto_field_name=True)
        with (self.directory / job_directory.EVENTS).open("a") as file:
            file.write(line + "\n")

    def start_workers(self) -> None:
        (self.directory / job_directory.INSTANCES).mkdir(exist_ok=True)
        for record in (self.directory / job_directory.INSTANCES).glob("*.json"):
            # Workers of a fake job that was killed; a real master would keep them.
            facts = json.loads(record.read_bytes())
            with contextlib.suppress(OSError):
                if process_identity.start_time(facts["pid"]) == facts["start_time"]:
                    os.kill(facts["pid"], signal.SIGKILL)
        for number in range(self.spec.workers.max):
            log = (self.directory / job_directory.LOGS / f"worker-{number}.log").open("wb")
            # No interpreter, which would take longer to start than it does anything.
            script = f"echo worker {number} here; exec sleep 900"
            child = subprocess.Popen(["sh", "-c", script], stdout=log, start_new_session=True)
            self.workers.append(child)
            facts = {
                "worker": number,
                "pid": child.pid,
                "start_time": process_identity.start_time(child.pid),
            }
            record = self.directory / job_directory.INSTANCES / f"worker-{number}-0.json"
            replace_file(record, json.dumps(facts).encode())
            self.status.workers.add(id=number, state="ready", pid=child.pid, host="here")

    def write_status(self) -> None:
        with self.lock:
            self.status.seconds = time.monotonic() - self.began
            text = json_format.MessageToJson(self.status, preserving_proto_field_name=True)
        replace_file(self.directory / job_directory.STATUS, text.encode())

    def fail(self, code: ErrorCode.ValueType, what: str, **more: str) -> None:
        with self.lock:
            self.status.state = job_pb2.FAILED
            self.status.error.CopyFrom(error_pb2.Error(code=code, what=what, **more))

    def step(self) -> None:
        with self.lock:
            progress = self.status.progress
            match self.status.state:
                # Of a job that has trained nothing yet.
                case job_pb2.STARTING if self.spec.export.job and self.scenario == "quick":
                    self.status.state = job_pb2.FINISHING
                case job_pb2.STARTING:
                    self.status.state = job_pb2.RUNNING
                    self._add_event("JobRunning", "the first worker is ready")
                    write_timeline(self.directory)
                case job_pb2.STOPPING:
                    self.status.state = job_pb2.CANCELLED
                    self._add_event("JobStopped", "stopped", "warning")
                case job_pb2.RUNNING if self.scenario == "fail" and progress.records_done:
                    self._add_event("WorkerFailed", "worker 0 cannot work", "error")
                    self.fail(
                        ErrorCode.MODEL_CONTRACT,
                        "the model file has no loss",
                        where="zoo/mine.py",
                        remedy="Write def loss(labels, predictions).",
                        detail="\n".join(f"line {n}" for n in range(100)),
                    )
                case job_pb2.RUNNING if self.scenario in ("endless", "dying"):
                    progress.records_done = min(progress.records_done + 1, RECORDS - 1)
                    progress.loss, progress.records_per_s = 0.5, 20.0
                    progress.eta_s = 3600.0
                case job_pb2.RUNNING:
                    progress.records_done += STEP
                    progress.steps += STEP // 10
                    progress.loss, progress.records_per_s = 0.25, 5000.0
                    progress.epochs_done = progress.records_done // RECORDS if progress.epoch else 0
                    if progress.records_done >= progress.records_total:
                        self.status.state = job_pb2.FINISHING
                        self._add_event("EvaluationEnded", "Evaluation 1: accuracy 0.9")
                case job_pb2.FINISHING:
                    self._succeed()

    def _succeed(self) -> None:
        if self.spec.output:
            Path(self.spec.output).mkdir()
        self.status.metrics["accuracy"] = 0.9712
        if self.spec.type == job_pb2.TRAIN:
            self.status.records_trained = self.status.progress.records_done
        if self.spec.type == job_pb2.PREDICT:
            self.status.predictions = self.status.progress.records_done
        self.status.state = job_pb2.SUCCEEDED

    def run(self) -> None:
        PageKey.provide(self.directory / job_directory.PAGE)
        identities = IdentityFolder(self.directory / job_directory.IDENTITY, self.spec.name)
        access_control = None
        if identities.exists:
            access_control = AccessControl(Credentials(identities.file(Role.MASTER)))
        server = grpc.server(
            futures.ThreadPoolExecutor(8),
            options=channels.SERVER_OPTIONS,
            interceptors=[
                *([access_control.interceptor] if access_control else []),
                ErrorInterceptor(),
            ],
        )
        job_pb2_grpc.add_JobServicer_to_server(self, server)
        port = channels.add_port(server, "127.0.0.1:0", access_control)
        server.start()
        url = f"http://127.0.0.1:{self.spec.serving.dashboard_port or port + 1}/"
        self.status.dashboard_url = url
        self.start_workers()
        self._add_event("JobStarted", "the master listens")
        facts = {
            "address": f"127.0.0.1:{port}",
            "pid": os.getpid(),
            "start_time": process_identity.start_time(os.getpid()),
            "dashboard_url": url,
            "incarnation": "1",
        }
        replace_file(self.directory / job_directory.MASTER, json.dumps(facts).encode())
        print("fake job listens", flush=True)
        while self.status.state not in FINAL:
            self.write_status()
            time.sleep(TICK_S)
            self.step()
        for child in self.workers:
            child.kill()
            child.wait()
        del self.status.workers[:]
        self.status.finished_at = now()
        self.write_status()
        self.read.wait(5)
        time.sleep(self.spec.serving.keep_page_s)
        server.stop(0.2).wait()


def _view(chosen: argparse.Namespace) -> None:
    """Serve the page of a finished job, as far as its caller sees it."""
    if chosen.end_with_parent:
        end_with_parent()
    print(json.dumps({"dashboard_url": f"http://127.0.0.1:{chosen.port or 4711}/"}), flush=True)
    signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job-dir", type=Path)
    parser.add_argument("--view", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--end-with-parent", action="store_true")
    chosen = parser.parse_args()
    directory = chosen.job_dir
    if chosen.view is not None:
        _view(chosen)
    scenario = os.environ["EDL_SCENARIO"]
    # As a real master does: one master for each directory.
    held = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(job_directory.DIRECTORY_TAKEN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    match scenario:
        case "crash":
            raise RuntimeError("the fake job crashes as its scenario says")
        case "dying" if (directory / job_directory.MASTER).exists():
            raise RuntimeError("the fake job crashes as its scenario says")
        case "unlucky" | "late":
            starts = directory / "starts"
            starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
            if len(starts.read_text()) <= (2 if scenario == "unlucky" else 1):
                os.kill(os.getpid(), signal.SIGKILL)
            if scenario == "late":
                time.sleep(3600)
            FakeJob(directory, "endless").run()
        case "mute":
            time.sleep(3600)
        case "early":
            job = FakeJob(directory, scenario)
            job.fail(ErrorCode.DATA_DAMAGED, "chunk 3 is damaged", where="a.recordio, offset 40")
            job.write_status()
            sys.exit(3)
        case _:
            FakeJob(directory, scenario).run()


if __name__ == "__main__":
    main()
