"""The options of a job: one table, and how values are read with it."""

from edl.core.options.option import UNUSED, Given, Option, Verb
from edl.core.options.table import BY_NAME, OPTIONS, RUNNING, options_of
from edl.core.options.values import read, read_value, unknown

__all__ = [
    "BY_NAME",
    "OPTIONS",
    "RUNNING",
    "UNUSED",
    "Given",
    "Option",
    "Verb",
    "options_of",
    "read",
    "read_value",
    "unknown",
]
