"""Adapters to the outside world: files, stores, services, and jobs, here and on Kubernetes.

Modules here implement the ports of ``edl.ports``. What decides is in the core.
"""
