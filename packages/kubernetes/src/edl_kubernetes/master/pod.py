"""A master in a pod of a Job: Kubernetes starts it, and starts another one when it is gone.

The exit code tells the Job what to do. 0: the job has its result. Any other one: the next pod goes
on, unless the limit of the Job was lowered first because the job is over without a result.

Two pods of the Job may run for a while. ``master_term.py`` says what keeps them apart.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from google.protobuf import json_format

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, KubernetesApi
from edl_kubernetes.cluster.epochs import replace_epochs
from edl_kubernetes.master import former_masters
from edl_kubernetes.master.api_retry import TokenRejected
from edl_kubernetes.master.job_record import JobRecord
from edl_kubernetes.master.master_term import MasterTerm
from edl_kubernetes.master.owner_job import OwnerJob
from edl_kubernetes.master.pod_template import PodTemplate, PriorityMix
from edl_kubernetes.master.pods import KubernetesPods
from edl_kubernetes.master.server_pods import ServerPods
from edl_master.adapters.job_directory import JobDirectory
from edl_master.app import startup
from edl_master.app.host_environment import HostEnvironment
from edl_master.codec import failure_of
from edl_master.config.job_config import Config
from edl_master.core.identifiers import WorkerId
from edl_master.core.platform import Platform
from edl_master.recovery.restart import inherited_lock
from edl_master.reporting.status_codec import failed_status
from edl_master.server_group.processes import Arguments, ServerInstances
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.files import replace_file
from edl_runtime.identity.folder import IdentityFolder
from edl_runtime.identity.page_key import PageKey
from edl_runtime.local import job_directory
from edl_runtime.monitoring import logs

log = logging.getLogger(__name__)

_DIRECTORY_EVERY_S = 0.5
_SERVER_PORTS = (
    *("--port", str(objects.MASTER_PORT)),
    *("--stream-port", str(objects.STREAM_PORT)),
)
_IDENTITY = ("--identity", f"{objects.IDENTITY_DIRECTORY}/{objects.IDENTITY_FILE}")
_TERMINATED = 128 + signal.SIGTERM


def run(
    spec_file: Path,
    state: Path,
    connect: Callable[[], KubernetesApi],
    authority: Path = Path(objects.IDENTITY_DIRECTORY, objects.AUTHORITY_KEY),
) -> int:
    """Work on the job of this pod until it has ended; return the exit code.

    A pod that the API server no longer knows leaves the job to the next one.

    Args:
        spec_file: of the mounted Secret.
        state: where the volume is; the job's directory is below, by the job's name.
        connect: makes the API of the cluster.
        authority: the job's, of the other mounted Secret; if there is none, the job is not secured.
    """
    try:
        return _run(spec_file, state, connect, authority)
    except TokenRejected as error:
        log.error("the master ends: %s", error)
        return job_directory.DIRECTORY_TAKEN


def _run(
    spec_file: Path, state: Path, connect: Callable[[], KubernetesApi], authority: Path
) -> int:
    # The first process of a container ignores every signal that it does not handle.
    signal.signal(signal.SIGTERM, _leave)
    try:
        spec = json_format.Parse(spec_file.read_text(), job_pb2.JobSpec())
        logs.identify(job=spec.name)
        identities = _identities(authority, spec.name)
        api, namespace = connect(), spec.kubernetes.namespace
        pod = os.environ.get(objects.POD_NAME) or socket.gethostname()
        owner = OwnerJob.of_pod(api, namespace, pod)
        name = objects.object_name(spec.name)
        term = MasterTerm(api, namespace, name, owner.reference, pod)
        term.take()
        replace_epochs(spec, owner.read(api))
        failed = former_masters.find_failed_starts(api, namespace, owner)
    except (EdlError, ApiError, OSError, json_format.ParseError) as error:
        log.error("the master cannot start: %s", error)
        return startup.FAILED
    folder = state / spec.name
    directory = JobDirectory(folder)
    record = JobRecord(api, namespace, spec.name, owner.reference, term.number, folder)
    if len(failed) >= former_masters.MAX_FAILURES:
        failure = former_masters.failure(api, namespace, owner.job, failed)
        log.error("%s", failure)
        return _give_up(api, owner, record, failed_status(spec, failure_of(failure), time.time()))
    term.watch()
    if delay := former_masters.delay_s(len(failed)):
        log.warning("waiting %d s: %d masters failed soon after their start", delay, len(failed))
        time.sleep(delay)
    folder.mkdir(parents=True, exist_ok=True)
    if not _hold(directory, term):
        return job_directory.DIRECTORY_TAKEN
    _take_over(folder, spec)
    _take_page_key(spec_file.with_name(objects.PAGE_KEY), folder)
    _keep_log(folder)
    record.follow()
    startup.work(directory, _host_environment(api, owner, term, spec, identities))
    return _end(api, owner, directory, record)


def _leave(number: int, frame: FrameType | None) -> None:
    """Handle a signal while there is no job to suspend yet."""
    os._exit(_TERMINATED)


def _identities(authority: Path, job: str) -> IdentityFolder | None:
    """Return a folder of this pod for the master's own identity, which it signs itself.

    Not in the job's directory: the volume of that is not always this job's alone, and stays.

    Raises:
        EdlError: SYSTEM; the folder cannot be written.
        OSError: the authority cannot be read.
    """
    if not authority.exists():
        return None
    private = Path(tempfile.mkdtemp(prefix="edl-"))
    identities = IdentityFolder(private / job_directory.IDENTITY, job)
    identities.install(authority.read_bytes())
    return identities


def _hold(directory: JobDirectory, term: MasterTerm) -> bool:
    """Wait until a former master has left the directory; False if a later one has come."""
    inherited = inherited_lock()
    while not term.is_superseded:
        try:
            directory.lock.hold(inherited)
        except EdlError as error:
            if error.code != ErrorCode.JOB_EXISTS:
                raise
            log.info("a former master still holds the job's directory")
            time.sleep(_DIRECTORY_EVERY_S)
        else:
            return True
    return False


def _take_over(folder: Path, spec: job_pb2.JobSpec) -> None:
    """Make the directory that of this job: what a former job of the same name left is removed.

    Names are unique in a namespace, so the former one was deleted, and its volume was kept. A job
    that was resumed differs in its number of epochs from what it was before.
    """
    path = folder / job_directory.SPEC
    if path.exists():
        former = _read_spec(path)
        if former == spec:
            return
        former.training.num_epochs = spec.training.num_epochs
        if former != spec:
            log.warning("emptying %s, which belongs to a deleted job of the same name", folder)
            _empty(folder)
    text = json_format.MessageToJson(spec, preserving_proto_field_name=True)
    replace_file(path, text.encode(), durable=True)


def _read_spec(path: Path) -> job_pb2.JobSpec:
    """Return the specification of a former master; empty if another version of edl wrote it."""
    try:
        return json_format.Parse(path.read_text(), job_pb2.JobSpec())
    except json_format.ParseError:
        return job_pb2.JobSpec()


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _take_page_key(file: Path, folder: Path) -> None:
    """Use the key that clients read in the job's Secret; an older Secret has none."""
    if file.exists():
        PageKey.provide(folder / job_directory.PAGE, file.read_text())


def _keep_log(folder: Path) -> None:
    """Copy the log to a file in the directory, as Kubernetes deletes it along with the pod."""
    path = folder / job_directory.LOGS / "master.log"
    path.parent.mkdir(exist_ok=True)
    copy = logging.FileHandler(path)
    root = logging.getLogger()
    copy.setFormatter(root.handlers[0].formatter if root.handlers else None)
    root.addHandler(copy)


def _host_environment(
    api: KubernetesApi,
    owner: OwnerJob,
    term: MasterTerm,
    spec: job_pb2.JobSpec,
    identities: IdentityFolder | None,
) -> HostEnvironment:
    pods = spec.kubernetes
    identity = _IDENTITY if identities is not None else ()
    mix = PriorityMix(tuple((each.priority_class, each.workers) for each in pods.worker_priorities))
    template = PodTemplate(
        pods.namespace, spec.name, owner.uid, term.controller, json.loads(pods.worker_pod), mix
    )

    def platform(config: Config, address: Callable[[], str]) -> Platform:
        def command(worker: WorkerId) -> Sequence[str]:
            python = ["python3", "-P", "-m", "edl_worker"]
            return [*python, "--master", address(), "--worker-id", str(worker), *identity]

        return KubernetesPods(api, template, command, config.job_dir)

    def servers(
        config: Config, arguments: Arguments, on_end: Callable[[int, str], None]
    ) -> ServerInstances:
        def command(server: WorkerId) -> Sequence[str]:
            python = ["python3", "-P", "-m", "edl_master.parameter_server", "--remote"]
            return [*python, *_SERVER_PORTS, *arguments(server), *identity]

        own = replace(
            template, pod=json.loads(pods.server_pod), role=objects.SERVER, priorities=PriorityMix()
        )
        running = KubernetesPods(api, own, command, config.job_dir)
        return ServerPods(running, config.parameter_servers, on_end)

    def keeps_instances() -> bool:
        try:
            return not owner.is_suspended(api)
        except (ApiError, ApiUnavailable) as error:
            log.warning("cannot tell whether the Job is suspended: %s", error)
            return True

    return HostEnvironment(
        platform_factory=platform,
        launch_servers=servers,
        server_host=f"$({objects.POD_IP})",  # Kubernetes puts the variable's value there
        incarnation=f"{term.number:06x}{os.urandom(2).hex()}",
        stream_port=objects.STREAM_PORT,
        host=objects.service_host(spec.name, pods.namespace),
        identities=identities,
        is_superseded=lambda: term.is_superseded,
        confirm=term.confirm,
        keeps_instances=keeps_instances,
        api_requests=lambda: api.requests,
    )


def _give_up(
    api: KubernetesApi, owner: OwnerJob, record: JobRecord, status: job_pb2.JobStatus
) -> int:
    """End a job whose masters fail at each start; its directory, which may be why, is not used."""
    try:
        record.conclude(status)
        owner.accept_failure(api)
    except ApiError as error:
        log.error("the job cannot be ended: %s", error.message)
    return startup.FAILED


def _end(api: KubernetesApi, owner: OwnerJob, directory: JobDirectory, record: JobRecord) -> int:
    """Tell the Job and the record how the job ended."""
    # The Job may be changed so that it ends now, and terminates this pod: nothing is left to lose.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        record.complete()
    except ApiError as error:
        log.error("the job's record cannot be written: %s", error.message)
    if directory.read_status().state == job_pb2.SUCCEEDED:
        return 0
    try:
        owner.accept_failure(api)
    except ApiError as error:
        log.error("the Job cannot be ended: %s", error.message)
    sys.stderr.flush()
    return startup.FAILED
