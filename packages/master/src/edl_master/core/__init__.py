"""The master's core, without input or output: events in (``events``), effects out (``effects``).

``job`` is the state machine of one job. Its components: ``tasks``, ``leases``, ``ledger`` (what is
to do and what is done); ``worker``, ``worker_pool``, ``instance_control``, ``instance_reports``
(workers and their instances); ``dispatch``, ``lease_recovery``, ``stall_monitor``,
``periodic_checks`` (answers and failures); ``workflow``, ``evaluation``, ``outcome`` (what follows
what, and how a job ends); ``progress``, ``goodput``, ``view`` (what a job looks like).
``parameters`` is the parameter plane; ``platform`` is the port for instances.
"""
