"""The cluster's binaries, built once per content of the Go module and Go version."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests import dev_cache

MODULE = Path(__file__).parent / "module"
PACKAGES = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "dns": "./dns",
    "pause": "./pause",
}


def build() -> Path:
    """The folder with all binaries. The first call on a machine takes some five minutes."""
    folder = _cache() / _content_hash()
    if is_built():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with dev_cache.locked("kubernetes"):
        missing = [package for name, package in PACKAGES.items() if not (folder / name).is_file()]
        if missing:
            _compile(missing, folder)
    return folder


def is_built() -> bool:
    folder = _cache() / _content_hash()
    return all((folder / name).is_file() for name in PACKAGES)


def _cache() -> Path:
    return dev_cache.folder() / "kubernetes"


def _go(*arguments: str) -> str:
    run = subprocess.run(("go", *arguments), cwd=MODULE, check=True, capture_output=True, text=True)
    return run.stdout.strip()


def _content_hash() -> str:
    digest = hashlib.sha256(_go("version").encode())
    for source in sorted((*MODULE.glob("go.*"), *MODULE.glob("*/*.go"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(packages: list[str], folder: Path) -> None:
    """One build for all: the binaries share most of their packages."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        subprocess.run(
            (
                *("go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath"),
                *("-ldflags", _linker_flags(), "-o", f"{unfinished}/", *packages),
            ),
            cwd=MODULE,
            env={**os.environ, "CGO_ENABLED": "0"},
            check=True,
        )
        for binary in Path(unfinished).iterdir():
            shutil.move(binary, folder / binary.name)


def _linker_flags() -> str:
    """Clients that check the server's version need one; without it the server reports v0.0.0."""
    version = _go("list", "-mod=readonly", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "archive",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = [f"-X {package}.{key}={value}" for package in packages for key, value in values.items()]
    return " ".join(("-s", "-w", *flags))
