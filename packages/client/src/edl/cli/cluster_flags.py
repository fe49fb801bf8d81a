"""The options of commands about jobs that say where the jobs are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from edl import settings
from edl.cli.commands import option
from edl.cli.output import errors_as_output
from edl.core.options import BY_NAME
from edl.core.platforms import KUBERNETES
from edl.core.problem import usage

CLUSTER_SECTION = "Jobs on Kubernetes"
_NAMES = ("platform", "context", "namespace")


def finds_jobs(function: Callable[..., None]) -> Callable[..., None]:
    """Decorate the function of a command about jobs with the options that say where they are.

    A context or namespace alone means a cluster, too.
    """

    @option(
        "--platform",
        metavar="kubernetes",
        help="Include the jobs of a cluster; EDL_PLATFORM and edl.toml set this permanently.",
        section=CLUSTER_SECTION,
    )
    @option("--context", metavar="NAME", help="Context of the kubeconfig.", section=CLUSTER_SECTION)
    @option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Namespace of the jobs.",
        section=CLUSTER_SECTION,
    )
    @functools.wraps(function)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in _NAMES}
        flags = {name: value for name, value in given.items() if value}
        if values.get("all_namespaces"):
            flags["all_namespaces"] = "yes"
        if "platform" in flags:
            with errors_as_output(values.get("output_format")):
                flags["platform"] = _platform(flags["platform"])
        elif flags:
            flags["platform"] = KUBERNETES
        token = settings.command_flags.set(flags)
        try:
            function(**values)
        finally:
            settings.command_flags.reset(token)

    return run


def _platform(text: str) -> str:
    try:
        return str(BY_NAME["platform"].kind.read(text))
    except ValueError as error:
        raise usage(
            f"--platform: {error}",
            where="--platform",
            remedy="For example: --platform kubernetes",
        ) from None
