"""The parameter plane: values, gradients, optimizers and the counts that make them exact.

Start with ``plane``; everything else is a part of it.
"""
