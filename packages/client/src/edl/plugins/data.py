"""Files of data, here and in stores, as users name them."""

from __future__ import annotations

from edl.adapters import data_files, storage
from edl.adapters.local.preflight_checks import check_output, check_writable
from edl.core.data_layout import (
    DELIMITERS,
    IMAGE_SUFFIXES,
    SCHEMA_FILE,
    SCHEMA_VERSION,
    SPLIT_PARTS,
)
from edl.core.locations import absolute, scheme, user_path
from edl.core.locations import check as check_location

__all__ = [
    "DELIMITERS",
    "IMAGE_SUFFIXES",
    "SCHEMA_FILE",
    "SCHEMA_VERSION",
    "SPLIT_PARTS",
    "absolute",
    "check_location",
    "check_output",
    "check_writable",
    "data_files",
    "scheme",
    "storage",
    "user_path",
]
