"""The layout of data that conversions write and jobs read."""

from __future__ import annotations

IMAGE_SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"))
"""Ends of the names of images that a conversion reads."""

DELIMITERS = (",", ";", "\t", "|")
"""Delimiters of CSV files; where two fit equally well, the first."""

SCHEMA_FILE = "schema.json"
"""The description of a folder of records; next to a file ``x.recordio`` it is ``x.schema.json``."""
SCHEMA_VERSION = 1
SPLIT_PARTS = ("train", "test")
"""Folders that a split makes, and that one schema describes."""
