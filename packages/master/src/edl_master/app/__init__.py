"""The wiring: the start, the threads and the end of a master.

Only this package knows every other one. What can be decided without files or calls belongs in
``core``.
"""
