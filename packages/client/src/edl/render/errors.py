"""Every error a command can end with, as text and as an exit code."""

from __future__ import annotations

import errno
import os
import re
import traceback

import click

from edl import codec
from edl.core.exit_codes import present
from edl.core.exit_numbers import INTERRUPTED
from edl.core.options.option import Verb
from edl.core.options.values import unknown
from edl.core.problem import Problem, usage
from edl.core.suggestions import did_you_mean
from edl.render import terminal
from edl.render.job_text import failure_lines
from edl_proto.errors import EdlError, ErrorCode

_UNMAPPED = ("failed to map segment", "annot allocate memory", "not enough space")
"""In the error for a library for which there is no memory."""


def show(error: BaseException) -> int:
    """Print an error on stderr; returns its exit code."""
    if isinstance(error, click.Abort):  # Ctrl-C
        terminal.message("interrupted")
        return INTERRUPTED
    known = known_error(error)
    if known is None:
        return 0
    terminal.error(failure_lines(codec.failure_of(known)))
    return present(known.code_name).exit_code


def known_error(error: BaseException) -> EdlError | None:
    """Return what, where and what to do about any exception; None if that has been reported."""
    match error:
        case EdlError():
            return error
        case Problem():
            return codec.error_of(error)
        case click.exceptions.NoArgsIsHelpError():
            terminal.result(error.format_message())
            return None
        case click.ClickException():
            return codec.error_of(_usage(error))
        case OSError():
            return _system_error(error)
        case UnicodeEncodeError():
            return EdlError(
                ErrorCode.USAGE,
                f"the name {error.object!a} is not UTF-8",
                where=_place(error),
                remedy="Rename the file or folder.",
            )
        case MemoryError():
            return _no_memory(error)
        case ImportError() if any(text in str(error) for text in _UNMAPPED):
            return _no_memory(error)
        case _:
            return EdlError(
                ErrorCode.INTERNAL,
                f"{type(error).__name__}: {error}",
                where=_place(error),
                remedy="Please report this error with the lines below.",
                detail="".join(traceback.format_exception(error)),
            )


def _no_memory(error: Exception) -> EdlError:
    return EdlError(
        ErrorCode.SYSTEM,
        "there is not enough memory",
        where=_place(error),
        remedy="Free some memory, or work on smaller files.",
    )


def _system_error(error: OSError) -> EdlError:
    """Return the error for a call of the operating system that nothing else explains."""
    if isinstance(error, FileNotFoundError) and not _has_working_directory():
        return EdlError(
            ErrorCode.SYSTEM,
            "the working directory does not exist any more",
            where=os.environ.get("PWD", ""),
            remedy="Change to a folder that exists.",
        )
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return EdlError(
        ErrorCode.DISK_FULL if full else ErrorCode.SYSTEM,
        f"the operating system reports: {error.strerror or error}",
        where=os.fsdecode(error.filename) if error.filename else _place_of_output(error),
        remedy="Free some space there."
        if full
        else "Check that the path exists and that you may access it.",
    )


def _place_of_output(error: OSError) -> str:
    """Return where a call failed that names no file; a library prints help and completion."""
    frames = traceback.extract_tb(error.__traceback__)
    return "standard output" if frames and frames[-1].name == "echo" else _place(error)


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _usage(error: click.ClickException) -> Problem:
    """Return the usage error for a command line that cannot be parsed."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "edl"
    help_hint = f"{path} --help shows all options and examples."
    match error:
        case click.NoSuchOption(option_name=name) if context and context.info_name in set(Verb):
            known = (option.lstrip("-") for option in _option_names(context))
            return unknown(name.lstrip("-"), known, path, Verb(context.info_name))
        case click.NoSuchOption(option_name=name):
            remedy = did_you_mean(name, _option_names(context)) or help_hint
            return usage(f"there is no option {name}", where=path, remedy=remedy)
        case click.NoSuchCommand(command_name=name):
            near = did_you_mean(name, _command_names(context))
            remedy = near or f"{path} --help lists all commands."
            return usage(f"there is no command {name}", where=path, remedy=remedy)
        case click.MissingParameter(param=click.Parameter() as param):
            return usage(
                f"{path} needs {_name(param)}", where=path, remedy=_example(context) or help_hint
            )
        case click.BadParameter(param=click.Parameter() as param):
            reason = error.message.rstrip(".").replace("a valid integer range", "an integer")
            return usage(f"{_name(param)}: {reason}", where=path, remedy=help_hint)
    text = error.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    if (word := re.search(r"unexpected extra argument \((true|false)\)", text, re.I)) is not None:
        on = word.group(1).lower() == "true"
        help_hint = f"A flag has no value: write --{'' if on else 'no-'}shuffle, for example."
    elif "--params" in _option_names(context) and (
        pairs := re.search(r"unexpected extra arguments? \((\w+=.*)\)$", text)
    ):
        more = ", ".join(pairs.group(1).split())
        help_hint = f'Write all parameters as one value, in quotes: --params "NAME=VALUE, {more}".'
    elif "unexpected extra argument" in text:
        help_hint = (
            'Put each value after its option, and quote patterns: --data "train/*.recordio".'
            if "--data" in _option_names(context)
            else _example(context) or help_hint
        )
    return usage(text, where=path, remedy=help_hint)


def _name(param: click.Parameter) -> str:
    """Return how people call an option or argument."""
    is_option = isinstance(param, click.Option)
    return param.opts[0] if is_option else param.human_readable_name


def _option_names(context: object) -> list[str]:
    command = getattr(context, "command", None)
    params = command.get_params(context) if command is not None else []
    return [name for param in params for name in (*param.opts, *param.secondary_opts)]


def _command_names(context: object) -> list[str]:
    names = getattr(getattr(context, "command", None), "list_commands", None)
    return list(names(context)) if names is not None else []


def _example(context: object) -> str:
    text = getattr(getattr(context, "command", None), "epilog", "") or ""
    first = re.sub(r"\s*\\\n\s*", " ", text.strip()).partition("\n")[0]  # lines that continue
    return f"For example: {first}" if first else ""


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}, {frames[-1].name}" if frames else ""
