"""A real Kubernetes on this machine, for tests: control plane and real nodes.

The Kubernetes binaries are built from their Go module; etcd, containerd, runc and the network
plug-ins are Debian's. Each node is one set of Linux namespaces: nothing of it is visible outside,
and ending its first process ends all of it. The only port on this machine is one of the loopback
interface, which leads to the API server.

    python -m tests.kubernetes.cluster up      prints the path of a kubeconfig
    python -m tests.kubernetes.cluster down
"""
