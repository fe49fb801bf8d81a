"""Programs that a kubeconfig names to get credentials: how their failures come to light.

The official client says them to the root logger and continues without credentials.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from edl_runtime.kubernetes.api_errors import CredentialsMissing

_MODULE = "kube_config"
_REPORTED_ALREADY = "'NoneType' object"
"""The client fails at an empty text when the program has spoken to the terminal itself."""


@contextmanager
def required() -> Iterator[None]:
    """A block that loads a kubeconfig.

    Raises:
        CredentialsMissing: a program failed in the block.
    """
    with _reported() as failures:
        yield
    if failures:
        message = " ".join(failures[0].removeprefix("exec: ").split())
        raise CredentialsMissing("" if _REPORTED_ALREADY in message else message)


def refreshed_quietly(refresh: Callable[[Any], None]) -> Callable[[Any], None]:
    """The hook that refreshes a token; after a failure the API server refuses the old token."""

    def hook(configuration: Any) -> None:
        with _reported():
            refresh(configuration)
        configuration.refresh_api_key_hook = hook  # the client has set its own again

    return hook


@contextmanager
def _reported() -> Iterator[list[str]]:
    """What the client reports in a block, which then goes to no log."""
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
