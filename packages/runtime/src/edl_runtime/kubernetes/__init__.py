"""Kubernetes for client and master: the names of objects, and calls to the API server."""
