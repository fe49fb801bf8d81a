"""The cluster's binaries, built from their Go module."""

from __future__ import annotations

from pathlib import Path

from tests.go_programs import GoPrograms

_PROGRAMS = GoPrograms(
    name="kubernetes",
    module=Path(__file__).parent / "module",
    packages={
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "kwok": "sigs.k8s.io/kwok/cmd/kwok",
        "dns": "./dns",
        "pause": "./pause",
    },
)


def build() -> Path:
    """The folder with all binaries. The first call on a machine takes some five minutes."""
    return _PROGRAMS.build(_linker_flags)


def is_built() -> bool:
    return _PROGRAMS.is_built()


def _linker_flags() -> list[str]:
    """Clients that check the server's version need one; without it the server reports v0.0.0."""
    version = _PROGRAMS.go("list", "-mod=readonly", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "archive",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return [f"-X {package}.{key}={value}" for package in packages for key, value in values.items()]
