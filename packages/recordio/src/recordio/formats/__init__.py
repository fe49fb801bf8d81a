"""Formats of files of records: what reads and writes each, and which one a file has."""
