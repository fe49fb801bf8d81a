"""Injects faults into every process of real jobs, and audits the results: ``./dev chaos``.

A seed gives the schedule: which fault, on whom, and how long after the fault before. Jobs run one
after the other while there is time; each ends undisturbed and is audited. The counting model shows
records that were lost or repeated; the digits show that a real model still learns. What the
machine does in between is not controlled, so a seed repeats the faults, not the run.

``faults`` is the table of what can happen, ``job`` starts a job and finds its processes,
``audits`` says what a job must have made, and ``__main__`` is the command line.
"""
