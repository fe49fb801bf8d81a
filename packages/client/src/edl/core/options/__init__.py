"""The options of a job: one table, and how values are read with it."""

from edl.core.options.option import Given, Option, Verb
from edl.core.options.reading import read, unknown
from edl.core.options.table import BY_NAME, OPTIONS, options_of

__all__ = ["BY_NAME", "OPTIONS", "Given", "Option", "Verb", "options_of", "read", "unknown"]
