"""The master of a job: it hands out tasks, keeps the parameters, and runs the workers.

``core`` decides, without input or output. ``control`` carries its decisions out, ``adapters`` do so
on machines, clusters and stores, ``servicers`` answer the calls of workers and clients, and ``app``
wires them. Code that workers or the client need, too, belongs in ``edl_proto`` or ``edl_runtime``.
"""
