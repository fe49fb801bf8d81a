"""The failures of programs that a kubeconfig names to get credentials.

The official client says them to the root logger and continues without credentials.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from edl_kubernetes.cluster.api_errors import CredentialsMissing

_MODULE = "kube_config"
_REPORTED_ALREADY = "'NoneType' object"
"""The client fails at an empty text if the program has written to the terminal itself."""


@contextmanager
def require_credentials() -> Iterator[None]:
    """Raise the failure of a credential program in a block that loads a kubeconfig.

    Raises:
        CredentialsMissing: a program failed in the block.
    """
    with _collect_reports() as failures:
        yield
    if failures:
        message = " ".join(failures[0].removeprefix("exec: ").split())
        raise CredentialsMissing("" if _REPORTED_ALREADY in message else message)


def refreshed_quietly(refresh: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a hook that refreshes a token; if that fails, the API server refuses the old one."""

    def hook(configuration: Any) -> None:
        with _collect_reports():
            refresh(configuration)
        configuration.refresh_api_key_hook = hook  # the client has set its own again

    return hook


@contextmanager
def _collect_reports() -> Iterator[list[str]]:
    """Collect what the client reports in a block, which then goes to no log."""
    failures: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.module != _MODULE:
            return True
        failures.append(record.getMessage())
        return False

    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)  # without any, logging would add one that prints
    root.addFilter(keep)
    try:
        yield failures
    finally:
        root.removeFilter(keep)
        root.removeHandler(silent)
