"""The options of jobs, for commands that run jobs."""

from __future__ import annotations

from edl.cli.option_parameters import given, takes
from edl.core.options import BY_NAME, RUNNING, Given, Verb, read_value
from edl.core.options.option import Option

__all__ = ["BY_NAME", "RUNNING", "Given", "Option", "Verb", "given", "read_value", "takes"]
