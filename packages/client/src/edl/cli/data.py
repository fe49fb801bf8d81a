"""The group ``edl data``, whose commands are those of optional packages."""

from __future__ import annotations

from edl.cli.commands import LazyGroup
from edl.cli.plugin_commands import CommandTable

data = LazyGroup(
    "data",
    table=CommandTable({}, "data"),
    help="Convert data to RecordIO files, inspect files of records, load predictions.",
    epilog="edl data convert table.csv --label price --to data\n"
    "edl data inspect data/*.recordio --check",
    no_args_is_help=True,
)
