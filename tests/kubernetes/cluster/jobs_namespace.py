"""A namespace for jobs, as ``deploy/kubernetes`` makes it, and a user who may submit there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from .cluster import Cluster

NAMESPACE = "edl-jobs"
_DEPLOYMENT = Path(__file__).parents[3] / "deploy" / "kubernetes"
_FILES, _STATE = "files", "state"
STATE = "state"
"""The folder, within the one of ``prepare``, that has the directories of jobs."""


@dataclass(frozen=True)
class Submitter:
    """A user who submits jobs with the rights of the role ``edl-submitter``, and no others.

    Attributes:
        environ: variables for ``edl`` that name the cluster and the credentials.
        arguments: options of every job; pods see the folder of ``prepare`` under its own path.
        made: the objects that were not there before, in the order in which they were made.
    """

    environ: Mapping[str, str]
    arguments: tuple[str, ...]
    made: tuple[str, ...]


def prepare(cluster: Cluster, folder: Path, *, image: bool = True) -> Submitter:
    """Make the namespace, claims within ``folder``, and credentials of a submitter.

    Args:
        image: jobs run in the image of this working tree; otherwise the caller names one.

    Raises:
        Unavailable: a part of the image of jobs cannot be had.
    """
    state = folder / STATE
    state.mkdir(exist_ok=True)
    said = [
        *(
            cluster.kubectl("apply", "--kustomize", str(_DEPLOYMENT / part))
            for part in ("cluster", "namespace")
        ),
        cluster.add_claim(NAMESPACE, _FILES, folder),
        cluster.add_claim(NAMESPACE, _STATE, state),
    ]
    token = cluster.kubectl(
        *("create", "token", "edl-submitter", f"--namespace={NAMESPACE}", "--duration=8h")
    )
    config = yaml.safe_load(cluster.layout.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token.strip()}
    for context in config["contexts"]:
        context["context"]["namespace"] = NAMESPACE
    kubeconfig = folder / "submitter.kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(config))
    return Submitter(
        {"KUBECONFIG": str(kubeconfig), "EDL_PLATFORM": "kubernetes"},
        (
            *(("--image", cluster.import_job_image()) if image else ()),
            *("--volumes", f"claim/{_FILES}:{folder}"),
            *("--state-volume", _STATE, "--priority-class", "edl-master"),
            # All pods of a test share two cores.
            *("--master-resources", "cpu=100m,memory=512Mi"),
            *("--worker-resources", "cpu=100m,memory=1Gi"),
        ),
        tuple(
            line.removesuffix(" created")
            for line in "".join(said).splitlines()
            if line.endswith(" created")
        ),
    )


def remove(cluster: Cluster, submitter: Submitter) -> None:
    """Delete what ``prepare`` has made."""
    # First a namespace, with the pods in it: a claim would wait for pods that mount it.
    ordered = sorted(submitter.made, key=lambda name: not name.startswith("namespace/"))
    for name in ordered:
        wait = f"--wait={str(name.startswith('namespace/')).lower()}"
        here = (f"--namespace={NAMESPACE}", "--ignore-not-found", "--timeout=600s", wait)
        cluster.kubectl("delete", name, *here)
