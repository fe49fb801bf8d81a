"""``edl doctor``, ``version`` and ``completion``."""

from __future__ import annotations

import platform
from dataclasses import asdict
from enum import StrEnum

import click
from click.shell_completion import get_completion_class

from edl.app import examine_machine
from edl.cli.commands import argument, command
from edl.cli.output import errors_as_output, output_option, print_result
from edl.core.diagnostics import is_fit, lines
from edl.core.versions import version_of
from edl.render import terminal
from edl.render.output_format import Format


@command("doctor", examples="edl doctor\nedl doctor -o json")
@output_option
def doctor(output_format: Format | None) -> None:
    """Check that this machine has everything a job needs. Exit code 1 if something is missing."""
    with errors_as_output(output_format):
        findings = list(examine_machine())
        fit = is_fit(findings)
        print_result(
            {"ok": fit, "findings": [asdict(finding) for finding in findings]},
            output_format,
            lines(findings),
            [finding.subject for finding in findings],
        )
        if not fit:
            raise click.exceptions.Exit(1)


@command("version", examples="edl version\nedl version -o json")
@output_option
def version(output_format: Format | None) -> None:
    """Print the versions of edl, Python and libraries, and the platform."""
    found = {
        "edl": version_of("edl-client") or "not installed",
        "python": platform.python_version(),
        "grpcio": version_of("grpcio") or "not installed",
        "protobuf": version_of("protobuf") or "not installed",
        "platform": platform.platform(),
    }
    print_result(
        found, output_format, [f"{name:<10}{value}" for name, value in found.items()], ["edl"]
    )


class Shell(StrEnum):
    """Shells that ``edl completion`` can write a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(
    "completion",
    examples="edl completion bash >> ~/.bashrc\n"
    "edl completion zsh > ~/.zfunc/_edl\n"
    "edl completion fish > ~/.config/fish/completions/edl.fish",
)
@argument(
    "shell",
    type=click.Choice(Shell, case_sensitive=False),
    metavar="bash|zsh|fish",
    help="Your shell.",
)
def completion(shell: Shell) -> None:
    """Print a script that completes commands, options, their values and names of jobs."""
    root = click.get_current_context().find_root()
    prog = root.info_name or "edl"
    complete = get_completion_class(shell.value)
    assert complete is not None, "click completes in each of these shells"
    script = complete(root.command, {}, prog, f"_{prog.upper()}_COMPLETE").source()
    terminal.result(script)
