"""Embedding tables: rows of numbers by id, made when they are first needed.

``spec`` says what a table is, ``index`` where the row of an id lies, ``store`` holds the rows,
``admission`` keeps rare ids out, ``table`` is one table at work, ``group`` all tables of a model.
"""
