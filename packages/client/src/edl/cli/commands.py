"""The parts of every command: its options, its help, and the groups that list it.

Commands of other packages are made of the same: ``command``, ``option`` and ``argument``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import click
from click.shell_completion import CompletionItem
from click.types import OptionHelpExtra

_OF_ELASTICDL = {"distribution-strategy": "strategy"}
"""Options of ElasticDL that edl has under another name."""


def _normalize(name: str) -> str:
    """Return the name of an option or a command that the user means: ``model-def``."""
    name = name.replace("_", "-")
    return _OF_ELASTICDL.get(name, name)


CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "token_normalize_func": _normalize,
}
"""Settings of the root command, which all others inherit."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_OPTIONS = "Options"


class EdlOption(click.Option):
    """An option that names the section of the help that it is in."""

    def __init__(self, *args: Any, section: str = _OPTIONS, **settings: Any) -> None:
        settings.setdefault("show_default", bool(settings.get("default")))
        super().__init__(*args, **settings)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)  # an error says it better
        return extra


class EdlCommand(click.Command):
    """A command whose help begins with examples (its ``epilog``) and has sections."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, rest = list(args), super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(given)
            for flag in _find_repeated(order):
                text = f"{flag} is given more than once, and only the last one counts"
                resolve_name("edl.render.terminal:warning")(text)  # help does not need it
        return rest

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.epilog or "")
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            is_argument = isinstance(param, click.Argument)
            section = "Arguments" if is_argument else getattr(param, "section", _OPTIONS)
            if record := param.get_help_record(ctx):
                sections.setdefault(section, []).append(record)
        write_sections(formatter, sections)


def _find_repeated(order: Sequence[click.Parameter]) -> list[str]:
    """Return the options of one value that a command line has several times."""
    single = [
        each
        for each in order
        if isinstance(each, click.Option) and not (each.multiple or each.is_flag or each.count)
    ]
    return [each.opts[0] for each in dict.fromkeys(single) if single.count(each) > 1]


def command(name: str, *, examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a function a command.

    Args:
        name: the word that calls it.
        examples: lines that users can copy.
    """
    return click.command(name, cls=EdlCommand, epilog=examples)


def option(*names: str, **settings: Any) -> Decorator:
    """Return a decorator that adds an option; where no type says more, files are completed.

    Args:
        names: its flags, and the name of the parameter if it is another one.
        settings: ``section`` of the help, or settings of ``click.option``.
    """
    if not settings.keys() & {"type", "is_flag", "shell_complete"}:
        settings["shell_complete"] = complete_files
    return click.option(*names, cls=EdlOption, **settings)


def argument(name: str, **settings: Any) -> Decorator:
    """Return a decorator that adds an argument; where nothing says more, files are completed."""
    if not isinstance(settings.get("type"), click.ParamType):
        settings.setdefault("shell_complete", complete_files)
    return click.argument(name, **settings)


def complete_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Leave the completion to the shell, which completes names of files."""
    return [CompletionItem(incomplete, type="file")]


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command that is imported when it is called.

    Attributes:
        target: where the command is, as ``package.module:name``.
        section: of the list of commands.
        summary: one line for this list.
    """

    target: str
    section: str
    summary: str

    def load(self) -> click.Command:
        """Import the command."""
        found: click.Command = resolve_name(self.target)
        return found


class LazyGroup(click.Group):
    """A group with a table of its commands, which imports only the called one.

    Args:
        table: the commands by name.
        footer: the end of the help.
    """

    def __init__(
        self, *args: Any, table: Mapping[str, CommandEntry], footer: str = "", **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.table = table
        self.footer = footer

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        return entry.load() if entry is not None else None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.epilog or "")
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.table.items():
            sections.setdefault(entry.section, []).append((name, entry.summary))
        write_sections(formatter, sections)
        if self.footer:
            formatter.write("\n" + self.footer)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete names from the table, without importing any command."""
        return [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.table.items()
            if name.startswith(incomplete)
        ]


def write_examples(formatter: click.HelpFormatter, examples: str) -> None:
    """Write examples without wrapping lines, so that users can copy them."""
    if examples.strip():
        formatter.write("Examples:\n")
        for line in examples.strip("\n").splitlines():
            formatter.write(f"  {line.rstrip()}\n")
        formatter.write("\n")


def write_sections(
    formatter: click.HelpFormatter, sections: Mapping[str, list[tuple[str, str]]]
) -> None:
    """Write each section as a table of two columns."""
    for section, rows in sections.items():
        with formatter.section(section):
            formatter.write_dl(rows)
