"""The parts of commands: parsing, results and messages."""

from __future__ import annotations

from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import argument, command, option
from edl.cli.output import (
    errors_as_output,
    name_argument,
    output_option,
    print_result,
    quiet_option,
)
from edl.render import terminal
from edl.render.errors import show
from edl.render.output_format import Format
from edl.render.table import table

__all__ = [
    "Format",
    "argument",
    "command",
    "errors_as_output",
    "finds_jobs",
    "name_argument",
    "option",
    "output_option",
    "print_result",
    "quiet_option",
    "show",
    "table",
    "terminal",
]
