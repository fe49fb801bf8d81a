"""Jobs on Kubernetes (``--platform kubernetes``); see docs/adr/0018-kubernetes.md.

Here belong the client's backend for a cluster, ``master``, which runs a job's master in a pod, and
``cluster``, what both have in common. The options of such jobs do not: they are in the client's
option table. Nor do workers and parameter servers: in a pod they are what they are elsewhere.
"""
