"""etcd, API server, controller manager and scheduler, in the first node's sandbox."""

from __future__ import annotations

from pathlib import Path

import yaml

from .certificates import USERS, Authority
from .layout import API_ADDRESS, API_PORT, SERVICE_RANGE, Layout
from .sandbox import Sandbox

SERVER = f"https://{API_ADDRESS}:{API_PORT}"
UNUSED = (
    *("certificatesigningrequest-approving", "certificatesigningrequest-cleaner"),
    *("certificatesigningrequest-signing", "cronjob", "daemonset", "endpoints"),
    *("endpointslice-mirroring", "ephemeral-volume", "horizontal-pod-autoscaler"),
    *("legacy-serviceaccount-token-cleaner", "persistentvolume-attach-detach"),
    *("persistentvolume-expander", "replicationcontroller", "resourceclaim", "statefulset", "ttl"),
    "validatingadmissionpolicy-status",
)
"""Controllers of objects that no test has: each one follows them, and the API server tells it."""


def start(sandbox: Sandbox, layout: Layout, binaries: Path, authority: Authority) -> None:
    """Start etcd and the API server, which answers some seconds later."""
    authority.sign_api_server()
    authority.write_service_account_key()
    for file, (organization, common_name) in USERS.items():
        authority.sign_user(file, organization, common_name)
        config = authority.kubeconfig(file, SERVER)
        layout.inner_kubeconfig(file).write_text(config)
    _start_etcd(sandbox, layout)
    _start_api_server(sandbox, layout, binaries)


def start_controllers(sandbox: Sandbox, layout: Layout, binaries: Path) -> None:
    """Start the other two, which end if the API server does not answer within ten seconds."""
    _start_controller_manager(sandbox, layout, binaries)
    _start_scheduler(sandbox, layout, binaries)


def _start_etcd(sandbox: Sandbox, layout: Layout) -> None:
    data = layout.root / "etcd"
    data.mkdir(mode=0o700)
    # In memory, so that nothing waits for a disk.
    sandbox.run("mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(data))
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    sandbox.start(
        *("etcd", "etcd", "--name=test", f"--data-dir={data}/data"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
        *(f"--initial-cluster=test={peer}", "--logger=zap", "--log-level=warn"),
    )


def start_api_server_again(sandbox: Sandbox, layout: Layout, binaries: Path) -> None:
    """After a fault test has killed it."""
    _start_api_server(sandbox, layout, binaries)


def _start_api_server(sandbox: Sandbox, layout: Layout, binaries: Path) -> None:
    keys = layout.certificates
    sandbox.start(
        *("kube-apiserver", str(binaries / "kube-apiserver")),
        *("--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0"),
        *(f"--secure-port={API_PORT}", f"--advertise-address={API_ADDRESS}"),
        *(f"--service-cluster-ip-range={SERVICE_RANGE}", f"--client-ca-file={keys}/ca.crt"),
        *(f"--tls-cert-file={keys}/apiserver.crt", f"--tls-private-key-file={keys}/apiserver.key"),
        *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-signing-key-file={keys}/service-accounts.key",
        f"--service-account-key-file={keys}/service-accounts.pub",
        f"--kubelet-client-certificate={keys}/kubelet-client.crt",
        f"--kubelet-client-key={keys}/kubelet-client.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        *("--kubelet-preferred-address-types=InternalIP", "--profiling=false"),
        # Tests do not compete for the API server; a fair order would be computed for each call.
        "--enable-priority-and-fairness=false",
        # As in most clusters; pod security decides by namespace.
        "--allow-privileged=true",
    )


def _start_controller_manager(sandbox: Sandbox, layout: Layout, binaries: Path) -> None:
    keys = layout.certificates
    sandbox.start(
        *("kube-controller-manager", str(binaries / "kube-controller-manager")),
        f"--kubeconfig={layout.inner_kubeconfig('controller-manager')}",
        *("--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false"),
        *("--kube-api-qps=200", "--kube-api-burst=400", "--use-service-account-credentials"),
        f"--service-account-private-key-file={keys}/service-accounts.key",
        f"--root-ca-file={keys}/ca.crt",
        f"--controllers={','.join(('*', *(f'-{name}-controller' for name in UNUSED)))}",
        # Tests that lose a node wait for 15 s instead of 50 s.
        *("--node-monitor-grace-period=15s", "--node-monitor-period=1s"),
    )


def _start_scheduler(sandbox: Sandbox, layout: Layout, binaries: Path) -> None:
    config = layout.root / "scheduler.yaml"
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        # The default binds 50 pods a second.
        "clientConnection": {
            "kubeconfig": str(layout.inner_kubeconfig("scheduler")),
            "qps": 500,
            "burst": 1000,
        },
    }
    config.write_text(yaml.safe_dump(content))
    sandbox.start(
        *("kube-scheduler", str(binaries / "kube-scheduler"), f"--config={config}"),
        *("--bind-address=127.0.0.1", "--profiling=false"),
    )
