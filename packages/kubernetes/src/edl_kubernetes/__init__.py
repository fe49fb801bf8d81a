"""Jobs on Kubernetes (``--platform kubernetes``); see docs/adr/0018-kubernetes.md.

Code with which the client talks to a cluster belongs here. The options of such jobs do not: they
are in the client's option table. Nor does anything that runs in the pods of a job: that is in the
packages of the master and the worker.
"""
