"""Registries of container images: manifests, blobs, signatures, and signed statements.

What speaks the OCI distribution protocol, or reads and writes cosign's formats, belongs here. Which
images may be used, and who signs them, is decided by those who call it.
"""
