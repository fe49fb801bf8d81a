"""The job's state machine behind its lock: events go in, and its effects are carried out.

Rules about tasks and workers belong in ``core``; platforms and files belong in ``adapters``.
"""
