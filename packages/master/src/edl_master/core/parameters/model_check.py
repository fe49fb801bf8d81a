"""Checks that an optimizer can update the variables and tables of a model."""

from __future__ import annotations

from collections import Counter

from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.local_steps import check_local_steps
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.optimizers import Optimizer


def check_fit(optimizer: Optimizer, layout: Layout, mode: UpdateMode) -> None:
    """Make sure that an optimizer can update the variables and tables of a model.

    Raises:
        OptimizerUnsupported: it cannot update embedding tables, or not in workers.
        ValueError: it excludes a variable from weight decay that the model does not have, or
            rows of tables would have to be updated in workers, or by one optimizer of several.
    """
    check_local_steps(optimizer, layout, mode)
    if layout.tables and optimizer.ema:
        raise OptimizerUnsupported(
            f"{optimizer.name}.use_ema",
            "True with embedding tables",
            "leave it out, or use keras.layers.Embedding with --embedding-threshold 0",
        )
    names = {v.name for v in layout.variables} | {t.name for t in layout.tables}
    if unknown := sorted(frozenset().union(*(one.undecayed for one in optimizer.each)) - names):
        raise ValueError(f"excluded from weight decay, but not a variable: {', '.join(unknown)}")
    if optimizer.others and layout.tables:
        raise ValueError("several optimizers cannot be combined with embedding tables")
    given = Counter(name for other in optimizer.others for name in other.variables)
    if unknown := sorted(given.keys() - names):
        raise ValueError(f"have an optimizer, but are not variables: {', '.join(unknown)}")
    if twice := sorted(name for name, count in given.items() if count > 1):
        raise ValueError(f"have several optimizers: {', '.join(twice)}")
