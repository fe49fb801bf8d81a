"""The names with which model files of ElasticDL reach MaxCompute (ODPS), which edl does not have.

A file may ask whether MaxCompute is configured, and usually it is not. Reading or writing a table
is an error that says what to do instead.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from elasticdl.python.common.constants import MaxComputeConfig


def is_odps_configured() -> bool:
    """Return whether the variables of MaxCompute are set in the worker's environment."""
    names = (
        *(MaxComputeConfig.PROJECT_NAME, MaxComputeConfig.ACCESS_ID),
        *(MaxComputeConfig.ACCESS_KEY, MaxComputeConfig.ENDPOINT),
    )
    return all(name in os.environ for name in names)


class ODPSReader:
    """A reader of a table, which edl refuses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse(
            "reads MaxCompute tables",
            "Export the table to CSV or RecordIO and give the files as --data.",
        )


class ODPSWriter:
    """A writer of a table, which edl refuses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse(
            "writes MaxCompute tables",
            "`edl predict` writes the predictions to --output; load them from there.",
        )


def refuse(what: str, remedy: str) -> NoReturn:
    """Raise the error of a model file that needs MaxCompute.

    Args:
        what: continues "the model file".
    """
    raise NotImplementedError(f"the model file {what}, which edl does not do. {remedy}")
