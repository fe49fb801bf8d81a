"""Jobs on Kubernetes: ``--platform kubernetes``; docs/adr/0018-kubernetes.md.

What talks to a cluster for the client belongs here. The options of such jobs are in the client's
table, and what the pods themselves do is the master's part.
"""
