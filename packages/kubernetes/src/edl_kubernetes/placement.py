"""Fits submissions to a cluster, and finds errors before it creates anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edl.plugins.backends import encode_spec, submission_time
from edl.plugins.errors import Problem, error_of, usage
from edl.plugins.files import read_input
from edl.plugins.job_status import to_json
from edl.plugins.options import BY_NAME, ClusterChoice, Verb
from edl.plugins.submissions import Submission, kubernetes_value_types, scheme
from edl_kubernetes.chosen_cluster import ChosenCluster, ClusterConnection
from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api_errors import ApiError, ApiUnavailable
from edl_kubernetes.cluster_job import describe
from edl_kubernetes.core import manifest, pods, templates
from edl_kubernetes.core.pods import PodTemplates
from edl_kubernetes.core.templates import JsonObject
from edl_kubernetes.refusals import NEEDED_VERSION
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.image_names import IMAGE_ZOO

_UNBUILT_IMAGE = "image-to-be-built"
"""The image in objects that are shown or checked before it is built."""

_ANY_ADDRESS = "0.0.0.0"

_REQUIRED_ACCESS = (
    ("batch", "jobs", "create"),
    ("batch", "jobs", "get"),
    ("batch", "jobs", "list"),
    ("batch", "jobs", "patch"),
    ("batch", "jobs", "delete"),
    ("", "secrets", "create"),
    ("", "secrets", "get"),
    ("", "services", "create"),
    ("", "configmaps", "get"),
    ("", "pods", "list"),
    ("", "pods", "create"),
    ("", "pods", "delete"),
    ("", "pods/log", "get"),
    ("", "pods/portforward", "get"),
)
"""The permissions that a submitter needs in the namespace: group, resource, verb."""


class ClusterPlacement:
    """The ``JobPlacement`` of a cluster: checks submissions, and renders their objects."""

    def __init__(self, cluster: ChosenCluster) -> None:
        self._cluster = cluster

    def resolve(self, job: Submission, environ: Mapping[str, str]) -> Submission:
        self._cluster.choose(ClusterChoice(job.context, job.namespace))
        connection = self._cluster.connect()
        read_templates(job)
        return replace(job, namespace=connection.namespace)

    def check(self, job: Submission) -> None:
        from edl.plugins.jobs import model_zoo, trained_models  # importing them takes long

        if job.verb is Verb.TRAIN and job.git_source is None:
            model_zoo.check(job)
        try:
            check_locations(job)
        except Problem as problem:
            raise error_of(problem) from None
        if job.verb is not Verb.TRAIN and not job.image:
            trained_models.check(job)  # it names the image that the pods would run
        connection = self._cluster.connect()
        try:
            self._check_access(connection)
            self._check_references(job, connection)
        except (ApiError, ApiUnavailable) as error:
            raise self._cluster.translate(error, "the checks of the job") from None
        self._dry_run(job, connection)

    def describe(self, job: Submission) -> Mapping[str, Any]:
        return describe(self.encode(job))

    def manifest(self, job: Submission) -> Mapping[str, Any]:
        shown = job if job.image else replace(job, image=_UNBUILT_IMAGE)
        text = to_json(self.encode(shown))
        return manifest.manifest(shown, shown.namespace, text, read_templates(shown))

    def provide_image(
        self,
        job: Submission,
        image: str,
        on_pull: Callable[[], None],
        on_line: Callable[[str], None],
    ) -> None:
        """Do nothing: the nodes pull the image."""

    def encode(self, job: Submission) -> job_pb2.JobSpec:
        """Return the specification of a job that is submitted now."""
        spec = encode_spec(job, f"{objects.STATE_DIRECTORY}/{job.name}", submission_time())
        if job.model_zoo:
            spec.model.model_zoo = IMAGE_ZOO
        spec.serving.host = _ANY_ADDRESS
        spec.serving.port = objects.MASTER_PORT
        spec.serving.dashboard_port = objects.PAGE_PORT
        user_templates = read_templates(job)
        cluster = spec.kubernetes
        cluster.namespace = job.namespace
        cluster.worker_pod = json.dumps(pods.worker_pod(job, user_templates))
        if spec.training.parameter_servers:
            cluster.server_pod = json.dumps(pods.server_pod(job, user_templates))
        classes = pods.worker_priorities(job)
        if len(classes) > 1:
            for share in classes:
                cluster.worker_priorities.add(priority_class=share.name, workers=share.workers or 0)
        cluster.state = "volume" if job.state_volume else "pod"
        return spec

    def _check_access(self, connection: ClusterConnection) -> None:
        """Check that the user may do what a submission needs.

        Raises:
            EdlError: FORBIDDEN, naming all permissions that are missing.
        """
        missing = []
        for group, resource, verb in _REQUIRED_ACCESS:
            name, _, subresource = resource.partition("/")
            attributes = {
                "namespace": connection.namespace,
                "group": group,
                "resource": name,
                "subresource": subresource,
                "verb": verb,
            }
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            answer = connection.api.create(
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review
            )
            if not answer["status"].get("allowed"):
                missing.append(f"{verb} {resource}")
        if missing:
            raise EdlError(
                ErrorCode.FORBIDDEN,
                f"you may not {', '.join(missing)} in the namespace {connection.namespace}",
                where=f"{connection.cluster}/{connection.namespace}",
                remedy="Ask a cluster administrator for the role edl-submitter (deploy/kubernetes),"
                " or choose another --namespace.",
            )

    def _check_references(self, job: Submission, connection: ClusterConnection) -> None:
        """Check that the objects that the pods refer to exist, as far as the user may read them.

        Raises:
            EdlError: USAGE, naming the option.
        """
        own = ("namespace", "namespace", connection.namespace)
        for option, kind, name in (own, *_references(job)):
            path = _CLUSTER_PATHS.get(kind) or connection.path(f"v1 {kind}s")
            try:
                connection.api.get(f"{path}/{name}")
            except ApiError as error:
                if error.status == 403:
                    continue  # pods may use an object that this user may not read
                if error.status != 404:
                    raise
                scope = "" if kind in _CLUSTER_PATHS else f"--namespace {connection.namespace} "
                raise EdlError(
                    ErrorCode.USAGE,
                    f"there is no {kind} {name}",
                    where=f"{BY_NAME[option].flag}, {connection.cluster}/{connection.namespace}",
                    remedy=f"kubectl {scope}get {kind} lists them.",
                ) from None

    def _dry_run(self, job: Submission, connection: ClusterConnection) -> None:
        """Have the server check all objects, the pods included, without creating any.

        Raises:
            EdlError: the server would refuse one of them.
        """
        shown = job if job.image else replace(job, image=_UNBUILT_IMAGE)
        items = self.manifest(shown)["items"]
        spec = self.encode(shown)
        master = pods.master_pod(shown, read_templates(shown))
        others = [json.loads(text) for text in (spec.kubernetes.worker_pod,) if text]
        if spec.kubernetes.server_pod:
            others.append(json.loads(spec.kubernetes.server_pod))
        for pod in ({"apiVersion": "v1", "kind": "Pod", **master}, *others):
            name = objects.object_name(job.name)
            pod["metadata"] = {**pod["metadata"], "name": f"{name}-dry-run"}
            self._try_object(connection, pod)
        for item in items:
            self._try_object(connection, item)

    def _try_object(self, connection: ClusterConnection, item: JsonObject) -> None:
        try:
            made = connection.api.create(
                connection.path(RESOURCES[item["kind"]]), without_status(item), dry_run=True
            )
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return  # it belongs to a former job of this name, which is being removed
            role = item["metadata"]["labels"].get(objects.LABEL_ROLE, "")
            what = f"the pod of a {role}" if item["kind"] == "Pod" else f"the {item['kind']}"
            raise self._cluster.translate(error, what) from None
        except ApiUnavailable as error:
            raise self._cluster.translate(error, "the checks of the job") from None
        if item["kind"] == "Job" and "successPolicy" not in made["spec"]:
            raise EdlError(
                ErrorCode.USAGE,
                "the cluster is too old: it cannot end a Job after its first success",
                where=connection.cluster,
                remedy=f"{NEEDED_VERSION}; --context chooses another cluster.",
            )


RESOURCES = {
    "Job": "batch/v1 jobs",
    "Secret": "v1 secrets",
    "Service": "v1 services",
    "PersistentVolumeClaim": "v1 persistentvolumeclaims",
    "Ingress": "networking.k8s.io/v1 ingresses",
    "Pod": "v1 pods",
}
"""The resource of each kind of objects, for ``ClusterConnection.path``."""

_CLUSTER_PATHS = {
    "namespace": "/api/v1/namespaces",
    "priorityclass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ingressclass": "/apis/networking.k8s.io/v1/ingressclasses",
}
"""The paths of kinds that belong to no namespace."""


def read_templates(job: Submission) -> PodTemplates:
    """Return the pod templates of a submission.

    Raises:
        EdlError: USAGE; a file cannot be read or merged.
    """
    try:
        found = PodTemplates(
            _read_template("pod_template", job.pod_template),
            _read_template("worker_pod_template", job.worker_pod_template),
        )
        pods.worker_pod(job, found)  # merging finds what checking does not
        return found
    except Problem as problem:
        raise error_of(problem) from None


def _read_template(option: str, path: str) -> JsonObject:
    if not path:
        return {}
    import yaml

    try:
        content = yaml.safe_load(read_input(Path(path)).decode())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise usage(
            f"the pod template cannot be read: {reason}",
            where=path,
            remedy=f"{BY_NAME[option].flag} names a file in YAML: a Pod, or part of one.",
        ) from None
    return templates.check(content, path)


def check_locations(job: Submission) -> None:
    """Check that pods can see each location that the job names.

    Raises:
        Problem: USAGE; a path is on this machine, and in no volume of the pods. Or the output is a
            volume itself: outputs are first written next to their final location. Or the profiles
            could not be fetched.
    """
    if job.profile is not None and not job.tensorboard_dir:
        raise usage(
            "--profile: only the master's pod could read the profiles",
            where="--profile",
            remedy="Add --tensorboard-dir with a folder of a volume: --volumes claim/NAME:/data"
            f" --tensorboard-dir /data/{job.name}.",
        )
    folders = [kubernetes_value_types.pod_volume(text).path for text in job.volumes]
    for option in (
        *("data", "validation_data", "output", "trained_model", "init_from"),
        *("checkpoint_dir", "tensorboard_dir", "data_cache"),
    ):
        value = getattr(job, option)
        for location in value if isinstance(value, tuple) else (value,):
            if not location or scheme(location):
                continue
            if option == "output" and location in folders:
                raise usage(
                    f"--output {location} is a volume itself: outputs are first written next to it",
                    where="--output",
                    remedy=f"Name a folder of the volume, such as {location}/{job.name}.",
                )
            if any(os.path.commonpath((location, folder)) == folder for folder in folders):
                continue
            store = "a store, such as s3://bucket/folder, or "
            flag = BY_NAME[option].flag
            raise usage(
                f"{flag} {location}: the job's pods do not see this machine's files",
                where=flag,
                remedy=f"Name {store if BY_NAME[option].may_be_in_a_store else ''}a folder of a"
                " volume: --volumes claim/NAME:/data.",
            )


def without_status(item: JsonObject) -> JsonObject:
    """Return an object as it is sent to the server."""
    return {key: value for key, value in item.items() if key != "status"}


def _references(job: Submission) -> list[tuple[str, str, str]]:
    """Return option, kind and name of all objects that a job's pods refer to."""
    found = [("service_account", "serviceaccount", pods.master_account(job))]
    if job.worker_service_account:
        found.append(("worker_service_account", "serviceaccount", job.worker_service_account))
    if job.state_volume and (claim := kubernetes_value_types.state_volume(job.state_volume).claim):
        found.append(("state_volume", "persistentvolumeclaim", claim))
    found += [("image_pull_secrets", "secret", name) for name in job.image_pull_secrets]
    kinds = {"claim": "persistentvolumeclaim", "secret": "secret", "configmap": "configmap"}
    for volume in map(kubernetes_value_types.pod_volume, job.volumes):
        found.append(("volumes", kinds[volume.kind], volume.source))
    for kind, name in map(kubernetes_value_types.variable_source, job.env_from):
        found.append(("env_from", kinds[kind], name))
    if job.priority_class:
        found.append(("priority_class", "priorityclass", job.priority_class))
    if job.ingress_class:
        found.append(("ingress_class", "ingressclass", job.ingress_class))
    for share in pods.worker_priorities(job):
        found.append(("worker_priority_class", "priorityclass", share.name))
    given = read_templates(job)
    for option, template in (
        ("pod_template", given.common),
        ("worker_pod_template", given.workers),
    ):
        found += [(option, kind, name) for kind, name in templates.references(template)]
    return found
