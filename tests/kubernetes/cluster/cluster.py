"""Starts and ends a whole cluster, and causes the faults of tests."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, KubernetesApi
from tests import job_image

from . import binaries, control_plane, images, machine, node, simulated_nodes, volumes
from .certificates import Authority
from .layout import API_ADDRESS, API_PORT, DNS_ADDRESS, Layout, NodeAddress
from .sandbox import NICENESS, Sandbox, ending_with_us, wait_until


@dataclass
class Cluster:
    """A running cluster."""

    layout: Layout
    binaries: Path
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    """By node name. The first one has the control plane, too."""
    relay: int = 0
    niceness: int = NICENESS
    stays: bool = False

    @classmethod
    def start(
        cls, root: Path, nodes: int = 1, niceness: int = NICENESS, *, stays: bool = False
    ) -> Cluster:
        """Build what is missing, start everything, and wait until each node is ready.

        Args:
            root: a new folder.
            nodes: how many real ones.
            niceness: of all processes, pods included.
            stays: all go on when this process is gone; otherwise they end with it.
        """
        folder = binaries.build()
        root.mkdir(parents=True)
        layout = Layout(root.absolute())
        layout.owner.write_text("" if stays else str(os.getpid()))
        cluster = cls(layout, folder, niceness=niceness, stays=stays)
        try:
            cluster._start(nodes)
        except BaseException:
            cluster.end()
            raise
        cluster.save()
        return cluster

    @classmethod
    def load(cls, root: Path) -> Cluster:
        """The cluster that another process started; raises ``FileNotFoundError``."""
        layout = Layout(root.absolute())
        state = json.loads(layout.state.read_text())
        sandboxes = {name: Sandbox.from_state(one) for name, one in state["sandboxes"].items()}
        return cls(layout, Path(state["binaries"]), sandboxes, state["relay"])

    @staticmethod
    def remove_left(root: Path) -> None:
        """Remove the files of a cluster whose process was killed."""
        layout = Layout(root.absolute())
        owner = layout.owner.read_text() if layout.owner.exists() else ""
        if owner and not Path("/proc", owner).exists():
            machine.remove_control_groups(layout)
            shutil.rmtree(layout.root)

    def save(self) -> None:
        state = {
            "binaries": str(self.binaries),
            "sandboxes": {name: sandbox.state() for name, sandbox in self.sandboxes.items()},
            "relay": self.relay,
        }
        self.layout.state.write_text(json.dumps(state, indent=1))

    def end(self) -> None:
        """End all processes and remove all files."""
        if self.relay:
            _kill(self.relay)
        for sandbox in reversed(self.sandboxes.values()):
            sandbox.end()
        machine.remove_control_groups(self.layout)
        shutil.rmtree(self.layout.root)

    @functools.cached_property
    def api(self) -> KubernetesApi:
        """The connection for what is asked often: each kubectl computes for a tenth of a second."""
        return KubernetesApi.from_kubeconfig(str(self.layout.kubeconfig))

    def answers(self, path: str) -> bool:
        """Whether the API server gives what has a path."""
        try:
            self.api.text(path, {})
        except (ApiError, ApiUnavailable):
            return False
        return True

    def wait_for_account(self, namespace: str) -> None:
        """Wait for a namespace's own account: until it is made, Kubernetes refuses pods."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_until(lambda: self.answers(path), f"the default service account of {namespace}")

    def create(self, namespace: str, items: Iterable[Mapping[str, Any]]) -> None:
        """Create objects in this order; the namespace is that of all that name none."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
        given = (f"--namespace={namespace}", "--filename=-")
        self.kubectl("create", *given, stdin=json.dumps(listed))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Return what the command prints; raises ``CalledProcessError`` with its complaint."""
        command = (str(self.binaries / "kubectl"), f"--kubeconfig={self.layout.kubeconfig}")
        try:
            done = subprocess.run(
                (*command, *arguments), check=True, capture_output=True, text=True, input=stdin
            )
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)
            raise
        return done.stdout

    def add_user(self, name: str, group: str, file: Path) -> None:
        """Write the kubeconfig of a user of this machine, whom a certificate identifies."""
        authority = Authority(self.layout.certificates)
        authority.sign_user(name, group, name)
        (cluster,) = yaml.safe_load(self.layout.kubeconfig.read_text())["clusters"]
        file.touch(mode=0o600)
        file.write_text(authority.kubeconfig(name, cluster["cluster"]["server"]))

    def import_image(self, archive: Path) -> None:
        for sandbox in self.sandboxes.values():
            node.import_image(sandbox, archive)

    def pin_image(self, name: str) -> str:
        """Give an image of all real nodes the name by its digest, too, and return that."""
        (pinned,) = {node.pin_image(each, name) for each in self.sandboxes.values()}
        return pinned

    def import_job_image(self, *nodes: str) -> str:
        """Give real nodes the image of this working tree; its name, with the digest.

        Args:
            nodes: their names; without, it is all. Each import computes for half a minute.

        Raises:
            Unavailable: a part of the image cannot be had.
        """
        image = job_image.make()
        chosen = [self.sandboxes[name] for name in nodes or self.sandboxes]
        (pinned,) = {node.import_job_image(each, image) for each in chosen}
        return pinned

    @contextlib.contextmanager
    def registry(self, port: int) -> Iterator[None]:
        """Nodes pull from the registry on a port of this machine, as ``127.0.0.1:PORT``.

        At the end they forget its images.
        """
        try:
            with self.open_port(port):
                yield
        finally:
            for sandbox in self.sandboxes.values():
                node.remove_images(sandbox, f"127.0.0.1:{port}/")

    @contextlib.contextmanager
    def open_port(self, port: int) -> Iterator[str]:
        """Let nodes and pods reach a port of this machine: nodes at their own, 127.0.0.1 included.

        Yields:
            Where pods find it, as ``ADDRESS:PORT``.
        """
        relays: list[int] = []
        try:
            with tempfile.TemporaryDirectory(dir=self.layout.root) as folder:
                for name, sandbox in self.sandboxes.items():
                    ready = Path(folder) / name
                    log = self.layout.logs / name / "port-relay.log"
                    given = ("--back", str(sandbox.init), str(port), str(ready))
                    relays.append(_start_relay(log, *given))
                    wait_until(ready.exists, f"the relay of {name} to port {port}")
            yield f"{API_ADDRESS}:{port}"
        finally:
            for relay in relays:
                _kill(relay)

    def add_claim(self, namespace: str, claim: str, folder: Path) -> str:
        """A claim that is a folder of this machine, which pods of any user may write.

        Jobs may mount it at the folder's own path, so that the paths of data stay the same.

        Returns:
            What kubectl says about the objects.
        """
        folder.chmod(0o777)
        manifest = volumes.manifest(namespace, claim, folder)
        return self.kubectl("apply", "--filename=-", stdin=manifest)

    def add_simulated_nodes(self, count: int) -> None:
        first = self.sandboxes["node1"]
        if "kwok" not in first.processes:
            simulated_nodes.start(first, self.layout, self.binaries)
            self.save()
        self.kubectl("apply", "--filename=-", stdin=simulated_nodes.manifest(count))
        self.kubectl("wait", "--for=condition=Ready", "node", "--selector=type=kwok")

    def freeze_kubelet(self, name: str) -> None:
        """The node is lost to the cluster, while its pods go on."""
        self.sandboxes[name].signal("kubelet", signal.SIGSTOP)

    def thaw_kubelet(self, name: str) -> None:
        self.sandboxes[name].thaw("kubelet")

    def stop_api_server(self) -> None:
        self.sandboxes["node1"].kill("kube-apiserver")

    def start_api_server(self) -> None:
        """Start it after ``stop_api_server``, and again while it ends at once."""
        first = self.sandboxes["node1"]
        control_plane.start_api_server_again(first, self.layout, self.binaries)

        def is_ready() -> bool:
            if not first.lives("kube-apiserver"):
                print(first.log("kube-apiserver")[-2000:])  # pytest shows it if the test fails
                control_plane.start_api_server_again(first, self.layout, self.binaries)
            return self._is_ready()

        try:
            wait_until(is_ready, "the API server")
        except TimeoutError:
            print(first.log("kube-apiserver")[-5000:])
            raise
        finally:
            self.save()

    def _start(self, nodes: int) -> None:
        authority = Authority(self.layout.certificates)
        addresses = [NodeAddress(number) for number in range(1, nodes + 1)]
        first = self._sandbox(addresses[0])
        control_plane.start(first, self.layout, self.binaries, authority)
        self._start_relay(first, authority)
        wait_until(self._is_ready, "the API server")
        control_plane.start_controllers(first, self.layout, self.binaries)
        archives = self._write_images()
        for address in addresses:
            sandbox = first if address.number == 1 else self._connected_sandbox(first, address)
            node.start(sandbox, self.layout, address, self.binaries, authority)
            for archive in archives:
                node.import_image(sandbox, archive)
        self._start_dns(first)
        wait_until(lambda: self._nodes_are_ready(nodes), "the nodes")
        self.wait_for_account("default")

    def _sandbox(self, address: NodeAddress) -> Sandbox:
        logs = self.layout.logs / address.name
        sandbox = Sandbox.create(address.name, logs, self.niceness, stays=self.stays)
        self.sandboxes[address.name] = sandbox
        machine.prepare(sandbox, self.layout, address)
        return sandbox

    def _connected_sandbox(self, first: Sandbox, address: NodeAddress) -> Sandbox:
        sandbox = self._sandbox(address)
        machine.connect(first, sandbox, address)
        return sandbox

    def _start_relay(self, first: Sandbox, authority: Authority) -> None:
        port_file = self.layout.root / "api.port"
        log = self.layout.logs / "relay.log"
        given = (str(first.init), str(API_PORT), str(port_file))
        self.relay = _start_relay(log, *given, stays=self.stays)
        wait_until(port_file.exists, "the relay to the API server")
        config = authority.kubeconfig("admin", f"https://127.0.0.1:{port_file.read_text()}")
        self.layout.kubeconfig.touch(mode=0o600)
        self.layout.kubeconfig.write_text(config)

    def _write_images(self) -> list[Path]:
        pause, busybox = (self.layout.root / f"{name}.tar" for name in ("pause", "busybox"))
        images.write_pause(self.binaries, pause)
        images.write_busybox(busybox)
        return [pause, busybox]

    def _start_dns(self, first: Sandbox) -> None:
        """A process on the first node, behind the address that pods expect."""
        first.start(
            *("dns", str(self.binaries / "dns"), f"--listen={API_ADDRESS}:53"),
            f"--kubeconfig={self.layout.inner_kubeconfig('admin')}",
        )
        ports = [{"name": p.lower(), "port": 53, "protocol": p} for p in ("UDP", "TCP")]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
        }
        endpoints = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-1",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [API_ADDRESS]}],
            "ports": ports,
        }
        self.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all([service, endpoints]))

    def _is_ready(self) -> bool:
        return self.answers("/readyz")

    def _nodes_are_ready(self, count: int) -> bool:
        listed = self.api.list("/api/v1/nodes").items
        conditions = [one for item in listed for one in item["status"]["conditions"]]
        ready = [one for one in conditions if one["type"] == "Ready" and one["status"] == "True"]
        return len(ready) == count


def _start_relay(log: Path, *arguments: str, stays: bool = False) -> int:
    command = (sys.executable, str(Path(__file__).with_name("relay.py")), *arguments)
    with log.open("wb") as output:
        return subprocess.Popen(
            command if stays else ending_with_us(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ).pid


def _kill(pid: int) -> None:
    try:
        subprocess.run(("kill", "-KILL", str(pid)), check=False, capture_output=True)
    except OSError:
        return
