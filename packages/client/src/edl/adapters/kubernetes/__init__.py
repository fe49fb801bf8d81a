"""Jobs on Kubernetes (``--platform kubernetes``): docs/adr/0018-kubernetes.md."""
