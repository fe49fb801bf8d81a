"""How the identities of a job's processes are issued and kept.

What a channel needs of them is in ``edl_proto.identity``.
"""
