"""Embedding tables: rows of numbers by id, made when they are first needed.

``index`` finds the row of an id, ``row_blocks`` holds the rows, ``admission`` keeps rare ids out,
``table`` is one table in use, ``group`` all tables of a model. The package above has the
specification of a table (``table_spec``) and the optimizer that updates it (``updater``).
"""
