"""Identities of a job's processes: how they are proved, and who may call what (docs/adr/0021).

How identities are issued, renewed and stored belongs to ``edl_runtime.identity``.
"""
