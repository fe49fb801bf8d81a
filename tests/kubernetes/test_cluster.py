"""What the tests of jobs take for granted about the cluster."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cluster.cluster import Cluster
from cluster.images import BUSYBOX_IMAGE


def pod(name: str, *command: str, image: str = BUSYBOX_IMAGE, **spec: object) -> str:
    """A pod that runs a command, as JSON."""
    container = {"name": "main", "image": image, "command": list(command)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], "restartPolicy": "Never", **spec},
        }
    )


def wait_for_phase(cluster: Cluster, name: str, phase: str) -> None:
    condition = f"--for=jsonpath={{.status.phase}}={phase}"
    cluster.kubectl("wait", condition, f"pod/{name}", "--timeout=600s")


def test_pods_of_both_nodes_reach_each_other_by_the_name_of_a_service(cluster: Cluster) -> None:
    serve = "mkdir /tmp/www; echo hello > /tmp/www/index.html; httpd -f -p 8080 -h /tmp/www"
    cluster.kubectl("create", "-f-", stdin=pod("server", "sh", "-c", serve, nodeName="node1"))
    cluster.kubectl("label", "pod/server", "app=server")
    cluster.kubectl("expose", "pod/server", "--port=80", "--target-port=8080")
    wait_for_phase(cluster, "server", "Running")
    fetch = "until wget -qO- http://server.default.svc.cluster.local/; do sleep 0.2; done"
    cluster.kubectl("create", "-f-", stdin=pod("client", "sh", "-c", fetch, nodeName="node2"))
    wait_for_phase(cluster, "client", "Succeeded")
    assert cluster.kubectl("logs", "client").endswith("hello\n")
    cluster.kubectl("delete", "pod/client", "pod/server", "service/server", "--grace-period=1")


def test_the_reason_and_code_of_a_containers_end_are_reported(cluster: Cluster) -> None:
    cluster.kubectl("create", "-f-", stdin=pod("failing", "sh", "-c", "exit 5"))
    wait_for_phase(cluster, "failing", "Failed")
    found = json.loads(cluster.kubectl("get", "pod/failing", "--output=json"))
    ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (5, "Error")
    cluster.kubectl("delete", "pod/failing")


def test_simulated_nodes_run_pods_without_a_kubelet(cluster: Cluster) -> None:
    cluster.add_simulated_nodes(2)
    spec = {"nodeSelector": {"type": "kwok"}, "tolerations": [{"operator": "Exists"}]}
    cluster.kubectl("create", "-f-", stdin=pod("simulated", "sleep", "1000", **spec))
    wait_for_phase(cluster, "simulated", "Running")
    cluster.kubectl("delete", "pod/simulated", "--grace-period=0", "--force")


def test_nodes_pull_from_a_registry_of_this_machine(cluster: Cluster) -> None:
    """A listener that counts is enough: what a pull is made of is the builder's own tests'."""
    asked = threading.Event()

    class Registry(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.set()
            self.send_error(404)

        do_GET = do_HEAD

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            port = server.server_address[1]
            with cluster.registry(port):
                image = f"127.0.0.1:{port}/nothing:1"
                cluster.kubectl("create", "-f-", stdin=pod("pulling", "true", image=image))
                assert asked.wait(120), "the kubelet asks for the image"
        finally:
            server.shutdown()
    cluster.kubectl("delete", "pod/pulling", "--grace-period=0", "--force")


def test_the_image_of_jobs_has_every_part_of_a_job(cluster: Cluster, job_image: str) -> None:
    script = "edl version; ls; python3 -c 'import edl_master, edl_worker, kubernetes, tensorflow'"
    whole = pod("parts", "sh", "-euc", script, image=job_image, nodeName="node1")
    cluster.kubectl("create", "-f-", stdin=whole)
    wait_for_phase(cluster, "parts", "Succeeded")
    said = cluster.kubectl("logs", "parts")
    assert "counting.py" in said
    assert "edl " in said
    cluster.kubectl("delete", "pod/parts")
