"""Parsing and help texts, the same for every command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_OPTIONS = "Options"
_RANGE = re.compile(r" *\[[^][]*x[<>]=[^][]*\]")
"""What the library says about the range of a number; an error says it better."""


class _PlainValues:
    """Mixin of commands; see ``_leave_plain_values``."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for param in self.params:  # type: ignore[attr-defined]  # the command's
            _leave_plain_values(param)

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]  # the command's
        if option is not None and "process_value" not in vars(option):
            _leave_plain_values(option)
        return option


class EdlCommand(_PlainValues, TyperCommand):
    """A command whose help begins with examples (its ``epilog``) and groups its options.

    ``--model_def`` is read as ``--model-def``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        return super().parse_args(ctx, with_dashes(args, known))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = (one for one in self.params if one.param_type_name == "argument")
        return [self.options_metavar or "", *map(argument_name, arguments)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_examples(formatter, self.epilog or "")
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            section = getattr(param, "rich_help_panel", None)
            record = param.get_help_record(ctx)
            if param.param_type_name == "argument":
                section, record = (
                    "Arguments",
                    (argument_name(param), getattr(param, "help", None) or ""),
                )
            if record is None:
                continue
            record = (record[0], _RANGE.sub("", record[1]))
            groups.setdefault(section or _OPTIONS, []).append(record)
        for section, records in groups.items():
            with formatter.section(section):
                formatter.write_dl(records)


class EdlGroup(_PlainValues, TyperGroup):
    """A group of commands such as ``edl data``, with examples first, too."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_examples(formatter, self.epilog or "")
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command that is imported on its first use.

    Attributes:
        module: where its Typer application ``app`` is.
        summary: one line for the list of commands.
    """

    module: str
    section: str
    summary: str
    is_group: bool = False


class LazyGroup(_PlainValues, TyperGroup):
    """The root command: has a table of its commands and imports only the called one."""

    table: Mapping[str, CommandEntry] = {}
    footer: str = ""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        group = get_group(import_module(entry.module).app)
        return group if entry.is_group else group.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_examples(formatter, self.epilog or "")
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.table.items():
            sections.setdefault(entry.section, []).append((name, entry.summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)
        formatter.write("\n" + self.footer)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Names and summaries from the table, without loading any command."""
        from typer._click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.table.items()
            if name.startswith(incomplete)
        ]


def argument_name(param: Any) -> str:
    """What stands for an argument in a command's help."""
    return str(param.metavar or param.name.upper())


def _leave_plain_values(param: Any) -> None:
    """Skip typer's coercion for values that have the right type already.

    Texts, missing values and words of an enumeration are most of what is ever given, and the
    library behind that coercion takes longer to import than most commands take to run.
    """
    wanted = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    coerce = param.process_value

    def process(ctx: Any, value: Any) -> Any:
        if isinstance(wanted, type) and issubclass(wanted, StrEnum) and isinstance(value, str):
            known = {str(item): item for item in wanted}
            value = known.get(value, value)
        plain = (
            value is None
            or (isinstance(wanted, type) and isinstance(value, wanted))
            or (wanted == list[str] and value and all(isinstance(item, str) for item in value))
        )
        if not plain or (value is None and param.required):
            return coerce(ctx, value)
        return param.callback(ctx, param, value) if param.callback is not None else value

    if wanted is not None:
        param.process_value = process


def with_dashes(args: list[str], known: set[str]) -> list[str]:
    """The arguments with dashes for underscores in the names of known options."""
    found: list[str] = []
    for index, token in enumerate(args):
        if token == "--":
            return found + args[index:]
        name, equals, value = token.partition("=")
        dashed = name.replace("_", "-")
        if token.startswith("--") and dashed in known:
            token = dashed + equals + value
        found.append(token)
    return found


def write_examples(formatter: Any, examples: str) -> None:
    """Write examples without wrapping lines, so that users can copy them."""
    if examples.strip():
        formatter.write("Examples:\n")
        for line in examples.strip("\n").splitlines():
            formatter.write(f"  {line.rstrip()}\n")
        formatter.write("\n")
