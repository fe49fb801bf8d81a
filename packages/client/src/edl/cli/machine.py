"""``edl doctor``, ``version`` and ``completion``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from edl.cli.commands import CONTEXT, EdlCommand
from edl.cli.output import Output, errors_as_output, print_result

app = typer.Typer(rich_markup_mode=None, context_settings=CONTEXT)


@app.command(cls=EdlCommand, epilog="edl doctor\nedl doctor -o json")
def doctor(output_format: Output = None) -> None:
    """Check that this machine has everything a job needs. Exit code 1 if something is missing."""
    with errors_as_output(output_format):
        from dataclasses import asdict

        from edl.adapters import machine_diagnostics
        from edl.core.diagnostics import is_fit, lines

        findings = list(machine_diagnostics.examine())
        fit = is_fit(findings)
        print_result(
            {"ok": fit, "findings": [asdict(finding) for finding in findings]},
            output_format,
            lines(findings),
            [finding.subject for finding in findings],
        )
        if not fit:
            raise typer.Exit(1)


@app.command(cls=EdlCommand, epilog="edl version\nedl version -o json")
def version(output_format: Output = None) -> None:
    """Print the versions of edl, Python and libraries, and the platform."""
    import platform

    from edl.adapters.machine_diagnostics import version_of

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


@app.command(
    cls=EdlCommand,
    epilog="edl completion bash >> ~/.bashrc\n"
    "edl completion zsh > ~/.zfunc/_edl\n"
    "edl completion fish > ~/.config/fish/completions/edl.fish",
)
def completion(
    ctx: typer.Context,
    shell: Annotated[
        Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.", show_default=False)
    ],
) -> None:
    """Print a script that completes commands, options, their values and names of jobs."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # not public

    from edl.render import terminal

    prog = ctx.find_root().info_name or "edl"
    variable = f"_{prog.upper()}_COMPLETE"
    terminal.result(get_completion_script(prog_name=prog, complete_var=variable, shell=shell.value))
