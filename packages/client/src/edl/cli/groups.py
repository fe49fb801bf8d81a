"""The groups ``edl zoo`` and ``edl data``; the commands of the latter are optional packages'."""

from __future__ import annotations

from edl.cli.commands import CommandEntry, LazyGroup
from edl.cli.plugin_commands import CommandTable

_COMMANDS = "Commands"
zoo = LazyGroup(
    "zoo",
    table=CommandTable(
        {
            "init": CommandEntry("edl.cli.zoo:init", _COMMANDS, "create a model zoo that works"),
            "check": CommandEntry(
                "edl.cli.zoo:check", _COMMANDS, "find all errors of a model file"
            ),
            "build": CommandEntry("edl.cli.zoo:build", _COMMANDS, "build and push the zoo's image"),
        },
        "zoo",
    ),
    help="Create a model zoo, check a model file, build the zoo's image.",
    epilog="edl zoo init my_zoo\nedl zoo check --model-zoo my_zoo --model-def circle",
    no_args_is_help=True,
)

data = LazyGroup(
    "data",
    table=CommandTable({}, "data"),
    help="Convert data to RecordIO files, inspect files of records, load predictions.",
    epilog="edl data convert table.csv --label price --to data\n"
    "edl data inspect data/*.recordio --check",
    no_args_is_help=True,
)
