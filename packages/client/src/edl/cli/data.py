"""The group ``edl data``, whose commands optional packages provide."""

from __future__ import annotations

from edl.cli.commands import CommandEntry, LazyGroup

_COMMANDS = "Commands"

data = LazyGroup(
    "data",
    table={
        "convert": CommandEntry(
            "edl_convert.cli:convert", _COMMANDS, "convert tables and images to RecordIO files"
        ),
        "load": CommandEntry(
            "edl_sql.cli.load:load", _COMMANDS, "write predictions into a column of a table"
        ),
        "inspect": CommandEntry(
            "edl_convert.cli:inspect", _COMMANDS, "show format, size and first record of files"
        ),
    },
    help="Convert data to RecordIO files, inspect files of records, load predictions.",
    epilog="edl data convert table.csv --label price --to data\n"
    "edl data inspect data/*.recordio --check",
    no_args_is_help=True,
)
