"""Images for jobs in containers and pods: having them built, and checking who has signed them.

What reaches builders and registries for the client belongs here. Which image a job needs, and when
one is built, is decided by ``edl``.
"""
