"""The master's side of parameter servers: the command log, their processes and their reports.

The servers themselves are in ``edl_master.parameter_server``.
"""
