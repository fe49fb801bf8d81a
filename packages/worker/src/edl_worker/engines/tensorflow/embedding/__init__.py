"""Embedding tables as the worker sees them.

``layer`` is what model files import as ``elasticdl.layers.Embedding``; ``keras_embedding`` are
Keras's own Embedding layers that are large enough to be served row by row; ``lookup_stages`` is
what a lookup does while a step is traced; ``tables`` holds all tables of a model.
"""
