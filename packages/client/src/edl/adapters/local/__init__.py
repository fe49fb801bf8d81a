"""Jobs of this machine: their processes or containers, files and supervisor, and the machine.

What a job needs wherever it runs, such as model zoos and stores, is not here.
"""
