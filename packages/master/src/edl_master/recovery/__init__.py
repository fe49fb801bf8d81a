"""The start of a master that continues a job: snapshots, checkpoints, requests, restarts.

The files themselves are read by ``adapters``; the core restores its own state.
"""
