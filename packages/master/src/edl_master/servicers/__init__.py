"""The gRPC services of a master: each checks a call, passes it on, and converts the answer.

Nothing is decided here; messages are converted by ``edl_master.codec`` and the other codecs.
"""
