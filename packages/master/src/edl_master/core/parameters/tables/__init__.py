"""Embedding tables: rows of numbers by id, made when they are first needed.

``index`` says where the row of an id lies, ``row_blocks`` holds the rows, ``admission`` keeps rare ids
out, ``table`` is one table in use, ``group`` all tables of a model. What a table is, and which
optimizer updates it, is said above: ``table_spec`` and ``updater``.
"""
