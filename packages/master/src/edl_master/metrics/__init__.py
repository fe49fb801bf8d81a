"""Every metric of the master, by name.

What the job itself counts is read from its view when Prometheus asks (``job``), and so is what the
processes of the job have reported (``processes``). Durations, bytes and outcomes of single calls
are in no view: they are observed where they occur (``instruments``). Labels are bounded: no task,
record, worker or process is one. Embedding tables and metrics are as many as the model has,
parameter servers as many as the job asks for. Labels whose values are known begin with 0, so that
no query misses a series.
"""
