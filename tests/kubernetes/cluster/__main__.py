"""A Kubernetes on this machine for people to try things on; as root.

An API server, controllers, a scheduler and kubelets run as processes in network namespaces of their
own, with containerd, and images come from this machine. One cluster runs at a time in each clone;
its files are in build/cluster. Without an action, ./dev cluster runs the tests on a cluster, and
anything else that is given goes to pytest: ./dev cluster tests/kubernetes/test_faults.py -k count
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests import job_image

from . import binaries, kueue, requirements
from .cluster import Cluster

ROOT = Path(__file__).parents[3] / "build" / "cluster"

EXAMPLE = """for example:
  ./dev cluster up --nodes 2      # prints: export KUBECONFIG=...
  ./dev cluster image             # prints the name of an image for edl train --image
  kubectl get nodes
  ./dev cluster down
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev cluster",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up", help="start a cluster and print where its kubeconfig is")
    up.add_argument("--nodes", type=int, default=1, metavar="N", help="real nodes (default: 1)")
    up.add_argument(
        "--simulated-nodes", type=int, default=0, metavar="N", help="nodes of kwok (default: none)"
    )
    actions.add_parser("down", help="end the cluster and everything in it, and remove its files")
    actions.add_parser("status", help="list nodes and pods")
    actions.add_parser("image", help="give the cluster the image of this working tree; print it")
    actions.add_parser("build", help="build the programs and the image, and start nothing")
    chosen = parser.parse_args()
    if missing := requirements.missing():
        print(f"A cluster needs: {', '.join(missing)}.", file=sys.stderr)
        return 1
    if chosen.action == "build":
        print(binaries.build())
        print(kueue.build())
        print(job_image.make().name)
        return 0
    if chosen.action == "up":
        return start(chosen.nodes, chosen.simulated_nodes)
    try:
        cluster = Cluster.load(ROOT)
    except FileNotFoundError:
        print("No cluster is running. Start one with: ./dev cluster up", file=sys.stderr)
        return 1
    if chosen.action == "down":
        cluster.end()
    elif chosen.action == "image":
        print(cluster.import_job_image())
    else:
        print(cluster.kubectl("get", "nodes,pods", "--all-namespaces"), end="")
    return 0


def start(nodes: int, simulated_nodes: int) -> int:
    if (ROOT / "state.json").exists():
        print("A cluster is already running. End it with: ./dev cluster down", file=sys.stderr)
        return 1
    if not binaries.is_built():
        print("Building Kubernetes. This takes five to ten minutes, once.", file=sys.stderr)
    began = time.monotonic()
    cluster = Cluster.start(ROOT, nodes, stays=True)
    if simulated_nodes:
        cluster.add_simulated_nodes(simulated_nodes)
    print(f"The cluster was ready after {time.monotonic() - began:.0f} s.", file=sys.stderr)
    print(f"export KUBECONFIG={cluster.layout.kubeconfig}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
