"""Options of jobs on Kubernetes: where they run, and what their pods are like."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.options.kubernetes_value_types import (
    CheckedText,
    CheckedTexts,
    Labels,
    ObjectNames,
    Pairs,
    Resources,
    ingress_host,
    object_name,
    pod_volume,
    priorities,
    state_volume,
    toleration,
    variable,
    variable_source,
)
from edl.core.options.option import TRAIN, Option, declare
from edl.core.options.value_types import Duration, Flag, Text

KeysAndValues = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """A cluster and namespace; empty: as the kubeconfig, or the pod's service account, says.

    Attributes:
        everywhere: look at the jobs of all namespaces.
    """

    context: str = ""
    namespace: str = ""
    everywhere: bool = False


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The options that say where a job on Kubernetes runs."""

    context: str = declare(
        Option(
            Text("NAME"),
            "Context of the kubeconfig.",
            "training",
            default_text="the current one; in a pod, the cluster of the pod",
        )
    )
    namespace: str = declare(
        Option(
            Text("NAME"),
            "Namespace of the job.",
            "team-a",
            default_text="that of the context; in a pod, its own",
            short="-n",
        )
    )
    state_volume: str = declare(
        Option(
            CheckedText("CLAIM|SIZE[:CLASS]", check=state_volume),
            "Volume that keeps the job's state when the master's pod is gone: an existing claim, "
            "or a new one that is deleted with the job.",
            "20Gi:fast",
            default_text="none: the state lasts as long as the master's pod",
        )
    )
    service_account: str = declare(
        Option(
            CheckedText("NAME", check=object_name),
            "Service account of the master's pod, which manages the job's pods.",
            "trainer",
            default_text="edl-master",
        )
    )
    worker_service_account: str = declare(
        Option(
            CheckedText("NAME", check=object_name),
            "Service account of the other pods; these pods get no token for the API server.",
            "reader",
            default_text="that of the namespace",
        )
    )
    priority_class: str = declare(
        Option(
            CheckedText("CLASS", check=object_name),
            "Priority class of master and parameter servers.",
            "edl-master",
        )
    )
    worker_priority_class: str = declare(
        Option(
            CheckedText("CLASS|CLASS=N,...,CLASS=rest", check=priorities),
            "Priority class of workers, or a mix: some workers in one class, the rest in another.",
            "high=2,low=rest",
        )
    )
    ingress: str = declare(
        Option(
            CheckedText("HOST", check=ingress_host),
            "Publish the job's page under this host name, with {name} for the job's.",
            "{name}.jobs.example.com",
        )
    )
    ingress_class: str = declare(
        Option(
            CheckedText("NAME", check=object_name),
            "Class of ingress controllers that publish the page.",
            "nginx",
            default_text="that of the cluster",
        )
    )
    suspend: bool = declare(
        Option(
            Flag(),
            "Create the job suspended, for a queue or a person to release.",
            default=False,
        )
    )
    start_timeout: float = declare(
        Option(
            Duration(min_s=1.0),
            "How long the master's pod may wait for a node and its image. If the registry does not "
            "answer, edl gives up after a tenth of this time, but not before 60 s.",
            "30m",
            default=600.0,
            default_text="10m",
        )
    )
    delete_after: float | None = declare(
        Option(
            Duration(min_s=60.0),
            "Delete the job, its record and a volume that was made for it so long after its end.",
            "7d",
            default=None,
            default_text="never",
        )
    )


@dataclass(frozen=True, kw_only=True)
class PodOptions:
    """The options of the pods of a job on Kubernetes."""

    master_resources: KeysAndValues = declare(
        Option(
            Resources(),
            "Resources of the master.",
            "cpu=2,memory=4Gi",
            default=(("cpu", "500m"), ("memory", "1Gi")),
            default_text="cpu=500m,memory=1Gi",
        )
    )
    worker_resources: KeysAndValues = declare(
        Option(
            Resources(),
            "Resources of each worker.",
            "cpu=4,memory=8Gi,nvidia.com/gpu=1",
            default=(("cpu", "1"), ("memory", "2Gi")),
            default_text="cpu=1,memory=2Gi",
        )
    )
    server_resources: KeysAndValues = declare(
        Option(
            Resources(),
            "Resources of each parameter server.",
            "cpu=2,memory=16Gi",
            default=(("cpu", "1"), ("memory", "2Gi")),
            default_text="cpu=1,memory=2Gi",
            verbs=TRAIN,
        )
    )
    node_selector: KeysAndValues = declare(
        Option(Labels(), "Labels of the nodes that pods may run on.", "pool=training", default=())
    )
    tolerations: tuple[str, ...] = declare(
        Option(
            CheckedTexts("KEY[=VALUE][:EFFECT]", check=toleration),
            "Taint that pods tolerate. Repeat the option for several.",
            "nvidia.com/gpu:NoSchedule",
            default=(),
        )
    )
    volumes: tuple[str, ...] = declare(
        Option(
            CheckedTexts("KIND/NAME:PATH[:ro]", check=pod_volume),
            "Folder of all pods: claim/NAME, secret/NAME or configmap/NAME. Repeat the option for "
            "several.",
            "claim/datasets:/data:ro",
            default=(),
        )
    )
    env: tuple[str, ...] = declare(
        Option(
            CheckedTexts("NAME=VALUE", check=variable),
            "Environment variable of all pods. Repeat the option for several.",
            "TF_ENABLE_ONEDNN_OPTS=0",
            default=(),
        )
    )
    env_from: tuple[str, ...] = declare(
        Option(
            CheckedTexts("KIND/NAME", check=variable_source),
            "Secret or ConfigMap whose keys are environment variables of all pods: secret/NAME or "
            "configmap/NAME. Repeat the option for several.",
            "secret/s3-access",
            default=(),
        )
    )
    image_pull_secrets: tuple[str, ...] = declare(
        Option(
            ObjectNames(), "Secrets that nodes pull the image with.", "registry-login", default=()
        )
    )
    labels: KeysAndValues = declare(
        Option(
            Labels(are_of_objects=True),
            "Labels of the job and its pods. Repeat the option to add more.",
            "kueue.x-k8s.io/queue-name=training",
            default=(),
        )
    )
    annotations: KeysAndValues = declare(
        Option(
            Pairs(are_of_objects=True),
            "Annotations of the job and its pods. Repeat the option to add more.",
            "owner=ada",
            default=(),
        )
    )
    pod_template: str = declare(
        Option(
            Text("FILE"),
            "Pod in YAML that is merged into all pods by Kubernetes' rules.",
            "pod.yaml",
            is_path=True,
        )
    )
    worker_pod_template: str = declare(
        Option(
            Text("FILE"),
            "Pod in YAML that is merged into the pods of workers, after --pod-template.",
            "worker.yaml",
            is_path=True,
        )
    )
