"""Turns fresh namespaces into a machine: directories, kernel settings, network, control groups."""

from __future__ import annotations

from pathlib import Path

from .layout import API_ADDRESS, POD_RANGE, SERVICE_RANGE, Layout, NodeAddress
from .sandbox import Sandbox

PRIVATE_DIRECTORIES = (
    *("/var/lib/containerd", "/var/lib/kubelet", "/var/lib/cni"),
    *("/var/log/pods", "/var/log/containers", "/etc/cni", "/opt/cni"),
)
KUBELET_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def prepare(sandbox: Sandbox, layout: Layout, node: NodeAddress) -> None:
    sandbox.run("hostname", node.name)
    _mount(sandbox, layout.root / node.name)
    _show_kernel_settings(sandbox)
    sandbox.script(
        f"""
        ip link set lo up
        ip addr add {node.address}/32 dev lo
        # A service's address needs some route before NAT rewrites it.
        ip route add {SERVICE_RANGE} dev lo src {node.address}
        sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.route_localnet=1
        """
    )
    _make_control_groups(sandbox, f"{layout.cgroup}-{node.name}")


def connect(first: Sandbox, other: Sandbox, node: NodeAddress) -> None:
    """Lay a cable from the first node to another one, and route all other nodes through it."""
    here, there = f"to-{node.name}", "to-first"
    link = ("type", "veth", "peer", "name", there, "netns", str(other.init))
    first.run_on_network("ip", "link", "add", here, *link)
    first.script(
        f"""
        ip addr add {API_ADDRESS} peer {node.address} dev {here}
        ip link set {here} up
        ip route add {node.pod_range} via {node.address}
        """
    )
    other.script(
        f"""
        ip addr add {node.address} peer {API_ADDRESS} dev {there}
        ip link set {there} up
        ip route add {POD_RANGE} via {API_ADDRESS}
        """
    )


def _mount(sandbox: Sandbox, root: Path) -> None:
    """The default paths of all programs can be used without touching those of this machine."""
    lines = ["mount -t tmpfs -o mode=755 tmpfs /run", "mkdir -p /run/lock /run/netns"]
    for directory in PRIVATE_DIRECTORIES:
        lines.append(f"mkdir -p {directory} {root}{directory}")
        lines.append(f"mount --bind {root}{directory} {directory}")
    lines.append("mount --make-rshared /")
    sandbox.script(
        # The new mount namespace is a copy; let go of the mounts of containers outside.
        'awk \'$3 == "overlay" || $3 == "nsfs" {print $2}\' /proc/mounts | tac |'
        ' while read -r point; do umount -l "$point" 2>/dev/null || true; done'
    )
    sandbox.script("\n".join(lines))


def _show_kernel_settings(sandbox: Sandbox) -> None:
    """The kubelet writes settings of the whole machine. Files that have the values satisfy it."""
    lines = ["mkdir -p /run/settings"]
    for key, value in KUBELET_SETTINGS.items():
        file = f"/run/settings/{key.replace('/', '_')}"
        lines.append(f"echo {value} > {file}; mount --bind {file} /proc/sys/{key}")
    sandbox.script("\n".join(lines))


def _make_control_groups(sandbox: Sandbox, name: str) -> None:
    sandbox.script(
        f"""
        for hierarchy in /sys/fs/cgroup/*/; do
            case $hierarchy in */unified/) continue ;; esac
            group=${{hierarchy}}{name}
            mkdir -p "$group"
            if [ -e "$group/cpuset.cpus" ]; then
                cat "${{hierarchy}}cpuset.mems" > "$group/cpuset.mems"
                cat "${{hierarchy}}cpuset.cpus" > "$group/cpuset.cpus"
            fi
        done
        """
    )


def remove_control_groups(layout: Layout) -> None:
    for group in Path("/sys/fs/cgroup").glob(f"*/{layout.cgroup}-*"):
        for folder in sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True):
            folder.rmdir()
        group.rmdir()
