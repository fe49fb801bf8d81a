"""The parameter plane: values, gradients, optimizers and the counts that make them exact.

Start with ``push_ledger``, which decides what counts, and ``store``, which holds the values. Locks
and threads belong in ``edl_master.parameters``.
"""
