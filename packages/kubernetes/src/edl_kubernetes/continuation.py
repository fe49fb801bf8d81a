"""Continues jobs on Kubernetes: resumes them, and exports their models."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from edl.plugins.backends import Say, export_fields, silent, start_fields, submission_time
from edl.plugins.errors import Problem, error_of
from edl.plugins.job_status import (
    JobState,
    JobStatus,
    check_more_epochs,
    new_submission,
    to_json,
)
from edl.plugins.submissions import names, scheme
from edl_kubernetes.chosen_cluster import ChosenCluster
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster_job import ClusterJob
from edl_kubernetes.core import export, identities, manifest
from edl_kubernetes.core.templates import JsonObject
from edl_kubernetes.job_creation import JobCreation, page_secrets
from edl_kubernetes.job_identities import NewIdentities
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.start import JobStart
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory

_START_S = 600.0
_POLL_S = 0.5


class ClusterContinuation:
    """The ``JobContinuation`` of a cluster: resumes jobs after ``edl stop --now``, and exports."""

    def __init__(self, cluster: ChosenCluster, job_objects: JobObjects) -> None:
        self._cluster = cluster
        self._objects = job_objects

    def next_steps(self, status: JobStatus) -> str:
        is_cancelled = status.state is JobState.CANCELLED
        if is_cancelled and self._objects.read(status.job, needs_spec=False).is_stopped:
            return f"edl resume {status.job} starts it again."
        return new_submission(status)

    def resume(self, name: str, say: Say = silent, *, num_epochs: int | None = None) -> bool:
        job = self._objects.read(name)
        status = job.status()
        if not status.state.is_over and job.is_suspended:
            namespace, own = self._objects.locate(name)
            patch = f"kubectl --namespace {namespace} patch job {objects.object_name(own)}"
            raise EdlError(
                ErrorCode.USAGE,
                f"{name} is suspended, and edl has not stopped it",
                where=self._objects.location(name),
                remedy="Wait until its queue releases it. Without a queue, release it yourself:"
                f""" {patch} -p '{{"spec":{{"suspend":false}}}}'""",
            )
        if num_epochs is not None and (job.is_stopped or not status.state.is_over):
            try:
                had = job.spec.training.num_epochs
                check_more_epochs(status, had, num_epochs, has_state=False)
            except Problem as problem:
                raise error_of(problem) from None
        if not status.state.is_over:
            return False
        masters = self._objects.pods(name, objects.MASTER)
        former = frozenset(pod["metadata"]["uid"] for pod in masters)
        if self._objects.release(name, num_epochs):
            JobStart(self._cluster, self._objects, name, _START_S, say, former).wait()
            return True
        raise EdlError(
            ErrorCode.JOB_OVER,
            f"{name} is over ({status.state.words}); on Kubernetes, only a job that"
            " edl stop --now has stopped can be resumed",
            where=self._objects.location(name),
            remedy="Continue training with a new job: --init-from takes a trained model.",
        )

    def export(
        self, name: str, output: str = "", say: Say = silent, *, overwrite: bool = False
    ) -> str:
        job = self._objects.read(name)
        namespace, own = self._objects.locate(name)
        short = names.add_suffix(job.spec.export.job or own, "export")
        self._check(job, output)
        creation = self._creation(job, own, short, output, overwrite)
        exporting = f"{namespace}/{short}" if "/" in name else short
        while not creation.create(say):
            self._remove_former(name, exporting)
        if not creation.is_queued:
            try:
                JobStart(self._cluster, self._objects, exporting, _START_S, say).wait()
            except BaseException as failure:  # Ctrl-C, too
                creation.withdraw(failure)
                raise
        return exporting

    def _remove_former(self, name: str, exporting: str) -> None:
        """Remove a former job that exported the same model.

        Raises:
            EdlError: JOB_EXISTS; it is still running.
        """
        try:
            is_over = self._objects.read(exporting).status().state.is_over
        except EdlError as error:
            if error.code != ErrorCode.JOB_NOT_FOUND:
                raise
            return  # another process has just deleted it
        if not is_over:
            raise EdlError(
                ErrorCode.JOB_EXISTS,
                f"the model of {name} is being exported",
                where=self._objects.location(exporting),
                remedy=f"edl wait {exporting} waits for its end.",
            )
        self._objects.delete(exporting)
        time.sleep(_POLL_S)

    def _check(self, job: ClusterJob, output: str) -> None:
        """Check that another job can read the state of a job and write its model to the output.

        Raises:
            EdlError: USAGE or JOB_OVER; it cannot.
        """
        spec, where = job.spec, self._objects.location(job.name)
        if spec.type != job_pb2.TRAIN:
            raise EdlError(
                ErrorCode.USAGE,
                f"{job.name} is not a training job, or you may not read its Secret",
                where=where,
                remedy="Only training jobs have a model to export; edl list shows all jobs.",
            )
        if job.status().state is JobState.SUCCEEDED and not spec.training.checkpoint_dir:
            raise EdlError(
                ErrorCode.JOB_OVER,
                f"{job.name} has succeeded: its model is in {spec.output}",
                where=where,
                remedy=f"edl status {job.name} shows its result.",
            )
        if spec.kubernetes.state != "volume" and not spec.training.checkpoint_dir:
            raise EdlError(
                ErrorCode.USAGE,
                f"the state of {job.name} is in its master's pod, and other pods cannot read it",
                where=where,
                remedy="Jobs with --state-volume or --checkpoint-dir can be exported; this one"
                " writes its model at its end.",
            )
        target = output or spec.output
        folders = export.mounted_folders(json.loads(spec.kubernetes.worker_pod))
        if not scheme(target) and not any(target.startswith(f"{each}/") for each in folders):
            raise EdlError(
                ErrorCode.USAGE,
                f"--output {target}: the job's pods do not see this machine's files"
                if target
                else f"{job.name} has no output",
                where="--output",
                remedy="Name a store, such as s3://bucket/folder"
                + (f", or a folder in {' or '.join(folders)}." if folders else "."),
            )

    def _creation(
        self, job: ClusterJob, name: str, short: str, output: str, overwrite: bool
    ) -> JobCreation:
        """Return the creation of the job that exports."""
        spec = job_pb2.JobSpec()
        spec.CopyFrom(job.spec)
        state = objects.STATE_DIRECTORY
        start_fields(spec, short, f"{state}/{short}", submission_time())
        snapshots = f"{state}/{name}/{job_directory.SNAPSHOTS}"
        export_fields(spec, name, snapshots, output, overwrite)
        pod = export.worker_pod(json.loads(spec.kubernetes.worker_pod), short)
        spec.kubernetes.worker_pod = json.dumps(pod)
        spec.kubernetes.ClearField("server_pod")
        job_object = export.job_object(job.item, short)
        namespace = job_object["metadata"]["namespace"]

        def make_owned() -> Iterator[JsonObject]:
            metadata = {"labels": job_object["metadata"]["labels"]}
            page = page_secrets()
            text = to_json(spec)
            yield from manifest.secret_and_service(short, namespace, metadata, text, page)
            new = NewIdentities(short)
            for secret in identities.secrets(short, 1, 0):
                labels = {**metadata["labels"], objects.LABEL_ROLE: secret.role}
                yield identities.render(secret, namespace, {"labels": labels}, new.content(secret))

        return JobCreation(self._cluster, job_object, make_owned, export.is_queued(job_object))
