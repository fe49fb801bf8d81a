"""Sends the initial values of a model to the parameter plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edl_worker.core.row_engine import RowEngine
from edl_worker.transport.parameter_client import PAGE_BYTES, ParameterClient


def send_initial_values(
    client: ParameterClient, values: npt.NDArray[np.uint8], tables: RowEngine | None
) -> bool:
    """Offer the initial values of a job; return False if another worker's values were first.

    Args:
        values: a payload of parameters, see ``core.layout``.
        tables: their rows that differ from the initializer's are sent, too.
    """
    for number, ids, rows in tables.initial_rows() if tables else ():
        step = max(1, PAGE_BYTES // (8 + rows.itemsize * rows.shape[1]))
        for at in range(0, ids.size, step):
            page = slice(at, at + step)
            if not client.put_rows(number, _bytes(ids[page]), _bytes(rows[page])):
                return False
    return client.initialize(values.data)


def _bytes(array: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
