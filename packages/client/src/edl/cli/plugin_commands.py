"""Commands that installed distributions add to ``edl`` and to its groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from edl.cli.commands import CommandEntry
from edl.core.plugins import PlugIns
from edl.core.problem import Problem

_KNOWN = {
    "serve": "edl-serve",
    "sql": "edl-sql",
    "trace": "edl-watch",
    "tune": "edl-tune",
    "zoo.verify": "edl-images",
    "dashboard.all": "edl-watch",
    "data.convert": "edl-convert",
    "data.load": "edl-sql",
    "data.inspect": "edl-convert",
}
_UNUSABLE = "Not usable"

_COMMANDS = PlugIns("edl.commands", "command edl", CommandEntry, _KNOWN)


@dataclass(frozen=True, slots=True)
class _UnusableCommand(CommandEntry):
    """A command that is not there; the list of commands and its call say why."""

    problem: Problem

    def load(self) -> click.Command:
        raise self.problem


class CommandTable(Mapping[str, CommandEntry]):
    """The commands of a group: those of the client, and those of plug-ins.

    Args:
        own: the client's, which no plug-in replaces.
        group: the name of the group, as ``data`` for the plug-in ``data.load``; empty for the root.
    """

    def __init__(self, own: Mapping[str, CommandEntry], group: str = "") -> None:
        self._own = own
        self._prefix = f"{group}." if group else ""

    def __iter__(self) -> Iterator[str]:
        names = (name for name in _COMMANDS if name.startswith(self._prefix))
        added = (name.removeprefix(self._prefix) for name in names)
        return iter(dict.fromkeys((*self._own, *(name for name in added if "." not in name))))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, name: str) -> CommandEntry:
        if name in self._own:
            return self._own[name]
        try:
            return _COMMANDS[self._prefix + name]
        except Problem as problem:
            return _UnusableCommand("", _UNUSABLE, problem.remedy, problem)
