"""Parses statements and queries, as pure code: texts in, values or errors out."""
