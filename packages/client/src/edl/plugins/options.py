"""The options of jobs, for commands and backends that run jobs, and the cluster they choose."""

from __future__ import annotations

from edl.cli.option_parameters import find_given, takes
from edl.core.options import BY_NAME, RUNNING, UNUSED, Given, Verb, options_of, read_value
from edl.core.options.kubernetes import ClusterChoice
from edl.core.options.option import Option
from edl.settings import cluster_choice, command_section, gather

__all__ = [
    "BY_NAME",
    "RUNNING",
    "UNUSED",
    "ClusterChoice",
    "Given",
    "Option",
    "Verb",
    "cluster_choice",
    "command_section",
    "find_given",
    "gather",
    "options_of",
    "read_value",
    "takes",
]
