"""A real node: containerd, kubelet and kube-proxy."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.job_image import JobImage

from .certificates import Authority
from .control_plane import SERVER
from .layout import DNS_ADDRESS, POD_RANGE, Layout, NodeAddress
from .sandbox import Sandbox, wait_until

PAUSE_IMAGE = "localhost/pause:1"
RUNTIME_SOCKET = "unix:///run/containerd/containerd.sock"


def start(
    sandbox: Sandbox, layout: Layout, node: NodeAddress, binaries: Path, authority: Authority
) -> None:
    """Start all three. The node is ready some seconds later."""
    authority.sign_node(node)
    folder = layout.root / node.name
    kubeconfig = layout.inner_kubeconfig(node.name)
    kubeconfig.write_text(authority.kubeconfig(node.name, SERVER))
    _start_containerd(sandbox, folder, node)
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet_config(layout, node)))
    # Pods must not learn the name servers of this machine.
    (folder / "resolv.conf").touch()
    start_kubelet(sandbox, layout, node, binaries)
    (folder / "proxy.yaml").write_text(yaml.safe_dump(_proxy_config(layout, node)))
    sandbox.start("kube-proxy", str(binaries / "kube-proxy"), f"--config={folder}/proxy.yaml")


def start_kubelet(sandbox: Sandbox, layout: Layout, node: NodeAddress, binaries: Path) -> None:
    sandbox.start(
        *("kubelet", str(binaries / "kubelet")),
        f"--config={layout.root / node.name}/kubelet.yaml",
        f"--kubeconfig={layout.inner_kubeconfig(node.name)}",
        *(f"--hostname-override={node.name}", f"--node-ip={node.address}"),
        "--root-dir=/var/lib/kubelet",
    )


def import_image(sandbox: Sandbox, archive: Path) -> None:
    """Make the image of a tar file available to pods, as if it had been pulled."""
    sandbox.run("ctr", "--namespace=k8s.io", "images", "import", str(archive))


def import_job_image(sandbox: Sandbox, image: JobImage) -> str:
    """Make the image of jobs available to pods, unless it is; its name by digest."""
    if not _digest(sandbox, image.name):
        sandbox.stream(image.write, "ctr", "--namespace=k8s.io", "images", "import", "-")
    return pin_image(sandbox, image.name)


def pin_image(sandbox: Sandbox, image: str) -> str:
    """Give an image the name by its digest, too, and return that."""
    name = f"{image.rpartition(':')[0]}@{_digest(sandbox, image)}"
    sandbox.run("ctr", "--namespace=k8s.io", "images", "tag", "--force", image, name)
    return name


def remove_images(sandbox: Sandbox, prefix: str) -> None:
    """Forget all images whose names begin so."""
    ctr = ("ctr", "--namespace=k8s.io", "images")
    names = sandbox.run(*ctr, "list", "--quiet").split()
    if found := [name for name in names if name.startswith(prefix)]:
        sandbox.run(*ctr, "remove", *found)


def _digest(sandbox: Sandbox, image: str) -> str:
    """Return the digest of an image's manifest; empty if the node has no such image."""
    listed = sandbox.run("ctr", "--namespace=k8s.io", "images", "list", f"name=={image}")
    rows = [line.split() for line in listed.splitlines()[1:]]
    return next((row[2] for row in rows if row[0] == image), "")


def _start_containerd(sandbox: Sandbox, folder: Path, node: NodeAddress) -> None:
    config = f"""
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE, runc fails at a negative oom_score_adj.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""
    (folder / "containerd.toml").write_text(config)
    # Point-to-point links, not a bridge: every packet is routed, so the rules of kube-proxy see it.
    pods = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/pod-addresses",
    }
    plugins = [
        {"type": "ptp", "mtu": 1500, "ipMasq": False, "ipam": pods},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}
    sandbox.run("mkdir", "-p", "/etc/cni/net.d")
    sandbox.run("tee", "/etc/cni/net.d/10-pods.conflist", stdin=json.dumps(network))
    sandbox.start("containerd", "containerd", f"--config={folder}/containerd.toml")
    wait_until(lambda: _answers(sandbox), "containerd")


def _answers(sandbox: Sandbox) -> bool:
    try:
        sandbox.run("ctr", "version")
    except Exception:
        return False
    return True


def _kubelet_config(layout: Layout, node: NodeAddress) -> dict[str, object]:
    keys = layout.certificates
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{keys}/{node.name}.crt",
        "tlsPrivateKeyFile": f"{keys}/{node.name}.key",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}-{node.name}",
        "containerRuntimeEndpoint": RUNTIME_SOCKET,
        "resolvConf": str(layout.root / node.name / "resolv.conf"),
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "maxPods": 250,
        # Images come from tar files; none may be removed when a disk is nearly full.
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "1000h",
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 20,
        "registryPullQPS": 0,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "eventRecordQPS": 0,
    }


def _proxy_config(layout: Layout, node: NodeAddress) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.inner_kubeconfig("proxy"))},
        "mode": "iptables",
        "clusterCIDR": POD_RANGE,
        "hostnameOverride": node.name,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # Settings of the whole machine: leave them as they are.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    }
