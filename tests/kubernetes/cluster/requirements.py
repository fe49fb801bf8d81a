"""What a test cluster needs on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SEARCH_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PROGRAMS = {
    # program: Debian package
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "/bin/busybox": "busybox-static",
    "debootstrap": "debootstrap",
}


def missing() -> list[str]:
    """Return the reasons why a cluster cannot start here; empty if there are none."""
    absent = [
        f"{Path(program).name} (Debian's {package})"
        for program, package in PROGRAMS.items()
        if not shutil.which(program, path=SEARCH_PATH)
    ]
    if not shutil.which("go"):
        absent.append("Go 1.24 or later")
    if os.geteuid() != 0:
        absent.append("root")
    return absent
