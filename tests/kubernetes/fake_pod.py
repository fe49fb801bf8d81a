"""What runs in a master's pod in tests of the client: a fake job, reachable as the real one.

EDL_SCENARIO says which job is played.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, KubernetesApi
from edl_proto.errors import ErrorCode
from edl_proto.identity.access_control import AccessControl
from edl_proto.identity.credentials import Credentials
from edl_proto.identity.names import Role
from edl_proto.rpc_errors import ErrorInterceptor
from edl_proto.v1 import job_pb2, job_pb2_grpc
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.local import job_directory
from edl_testing.fake_job import FakeJob

RECORD_S = 0.3


class Record:
    """The job's ConfigMap, as the real master keeps it."""

    def __init__(self, job: FakeJob) -> None:
        self.job = job
        self.api = KubernetesApi.in_cluster()
        self.base = f"/api/v1/namespaces/{job.spec.kubernetes.namespace}/configmaps"
        self.name = objects.object_name(job.spec.name)
        own = self.api.get(
            f"/apis/batch/v1/namespaces/{job.spec.kubernetes.namespace}/jobs/{self.name}"
        )
        self.own = f"/apis/batch/v1/namespaces/{own['metadata']['namespace']}/jobs/{self.name}"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name}
        self.owner = {**owner, "uid": own["metadata"]["uid"]}

    def write(self) -> None:
        folder = self.job.directory
        data = {
            objects.STATUS_KEY: _text(folder / job_directory.STATUS),
            objects.EVENTS_KEY: _text(folder / job_directory.EVENTS),
            objects.TIMELINE_KEY: _text(folder / job_directory.TIMELINE),
            objects.LOGS_KEY: json.dumps(
                {path.stem: path.read_text() for path in (folder / "logs").glob("*.log")}
            ),
        }
        metadata = {"name": self.name, "ownerReferences": [self.owner]}
        metadata["labels"] = objects.labels(self.job.spec.name, objects.MASTER)
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        try:
            self.api.create(self.base, item)
        except ApiError:
            self.api.replace(f"{self.base}/{self.name}", item)

    def follow(self) -> None:
        while True:
            time.sleep(RECORD_S)
            try:
                self.write()
            except (ApiError, ApiUnavailable) as error:
                print("record:", error, flush=True)

    def end(self) -> None:
        """The Job starts no other master."""
        self.write()
        if self.job.status.state != job_pb2.SUCCEEDED:
            self.api.patch(self.own, {"spec": {"backoffLimit": 0}})


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the page of a fake job")


def make_access_control(job: str) -> AccessControl:
    """Control access as the real master does, by the authority that only its pod sees."""
    identities = IdentityFolder(Path(tempfile.mkdtemp()) / "identity", job)
    identities.install(Path(objects.IDENTITY_DIRECTORY, objects.AUTHORITY_KEY).read_bytes())
    return AccessControl(Credentials(identities.provide(Role.MASTER)))


def serve(job: FakeJob) -> grpc.Server:
    options = (("grpc.so_reuseport", 0),)
    access_control = make_access_control(job.spec.name)
    server = grpc.server(
        futures.ThreadPoolExecutor(8),
        options=options,
        interceptors=[access_control.interceptor, ErrorInterceptor()],
    )
    job_pb2_grpc.add_JobServicer_to_server(job, server)
    servicer = health.HealthServicer()
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    access_control.add_port(server, f"0.0.0.0:{objects.MASTER_PORT}")
    server.start()
    page = http.server.ThreadingHTTPServer(("0.0.0.0", objects.PAGE_PORT), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    return server


def main() -> int:
    scenario = os.environ["SCENARIO"]
    if scenario == "crash":
        raise RuntimeError("the fake job crashes as its scenario says")
    text = Path(objects.SPEC_DIRECTORY, objects.SPEC_KEY).read_text()
    folder = Path(objects.STATE_DIRECTORY) / json.loads(text)["name"]
    (folder / job_directory.LOGS).mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / job_directory.INSTANCES, ignore_errors=True)
    (folder / job_directory.SPEC).write_text(text)
    job = FakeJob(folder, scenario)
    record = Record(job)
    if scenario == "early":
        job.fail(ErrorCode.DATA_DAMAGED, "chunk 3 is damaged", where="a.recordio, offset 40")
        job.write_status()
        record.end()
        return 3
    _server = serve(job)  # it ends with the last reference to it
    threading.Thread(target=record.follow, daemon=True).start()
    job.run()
    record.end()
    return 0 if job.status.state == job_pb2.SUCCEEDED else 3


if __name__ == "__main__":
    sys.exit(main())
