"""The flags of commands about jobs that say where the jobs are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from edl.cli.output import errors_as_output

Command = Callable[..., None]

_SECTION = "Jobs on Kubernetes"
_FLAGS: dict[str, Any] = {
    "platform": Annotated[
        str | None,
        typer.Option(
            "--platform",
            metavar="kubernetes",
            help="Include the jobs of a cluster; EDL_PLATFORM and edl.toml set this permanently.",
            rich_help_panel=_SECTION,
        ),
    ],
    "context": Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Context of the kubeconfig.",
            rich_help_panel=_SECTION,
        ),
    ],
    "namespace": Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace of the jobs.",
            rich_help_panel=_SECTION,
        ),
    ],
}


def _platform(text: str) -> str:
    from edl.core.options import BY_NAME
    from edl.core.problem import usage

    try:
        return str(BY_NAME["platform"].kind.read(text))
    except ValueError as error:
        raise usage(
            f"--platform: {error}",
            where="--platform",
            remedy="For example: --platform kubernetes",
        ) from None


def finds_jobs(command: Command) -> Command:
    """Decorate a command about jobs with the flags that say where they are.

    A context or namespace alone means a cluster, too.
    """

    @functools.wraps(command)
    def run(**values: Any) -> None:
        from edl import settings
        from edl.core.platforms import KUBERNETES

        flags = {name: values.pop(name) for name in _FLAGS if values.get(name)}
        for name in _FLAGS:
            values.pop(name, None)
        if values.get("all_namespaces"):
            flags["all_namespaces"] = "yes"
        if "platform" in flags:
            with errors_as_output(values.get("output_format")):
                flags["platform"] = _platform(flags["platform"])
        elif flags:
            flags["platform"] = KUBERNETES.name
        token = settings.command_flags.set(flags)
        try:
            command(**values)
        finally:
            settings.command_flags.reset(token)

    signature = inspect.signature(command)
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, keyword, default=None, annotation=annotation)
        for name, annotation in _FLAGS.items()
    ]
    hints = get_type_hints(command, include_extras=True)
    # Commands are called by name, so that these may follow.
    own = [
        item.replace(kind=keyword, annotation=hints[item.name])
        for item in signature.parameters.values()
    ]
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # inspect reads it
        parameters=[*own, *added]
    )
    run.__annotations__ = {**hints, **_FLAGS}
    return run
