"""Embedding tables as the worker sees them.

``layer`` is what model files import as ``elasticdl.layers.Embedding``; ``moved`` are Keras's own
Embedding layers that are large enough to be served row by row; ``stages`` is what a lookup does
while a step is traced; ``served`` holds all tables of a model.
"""
