"""Checks that an optimizer can update the variables and tables of a model."""

from __future__ import annotations

from collections import Counter

from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.local_steps import check_local_steps, is_local
from edl_master.core.parameters.modes import UpdateMode
from edl_master.core.parameters.optimizers import RULES, Optimizer
from edl_master.core.parameters.update_rules import RuleFailed
from edl_master.core.parameters.updater import update_once


def check_fit(optimizer: Optimizer, layout: Layout, mode: UpdateMode) -> None:
    """Make sure that an optimizer can update the variables and tables of a model.

    Raises:
        OptimizerUnsupported: it cannot update embedding tables, or not in workers; or its rule,
            which is not one of edl, fails.
        ValueError: it excludes a variable from weight decay that the model does not have, or
            rows of tables would have to be updated in workers, or by one optimizer of several.
    """
    check_local_steps(optimizer, layout, mode)
    _check_options(optimizer, layout)
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
    for one, variables in optimizer.shares(layout):
        if not isinstance(one.rule, tuple(RULES.values())) and not is_local(mode):
            _try_rule(one, layout, variables)


def _check_options(optimizer: Optimizer, layout: Layout) -> None:
    without_tables = "use keras.layers.Embedding with --embedding-threshold 0"
    if layout.tables and optimizer.ema:
        raise OptimizerUnsupported(
            f"{optimizer.name}.use_ema",
            "True with embedding tables",
            f"leave it out, or {without_tables}",
        )
    if layout.tables and optimizer.needs_whole_variables:
        what = f"{optimizer.name}, which needs whole variables, with embedding tables"
        raise OptimizerUnsupported("class", what, without_tables)
    for one in optimizer.each:
        if one.name == "ScheduleFreeAdamW" and one.ema and one.ema.overwrite_frequency:
            # Its average would have to be changed as well.
            option, value = f"{one.name}.ema_overwrite_frequency", one.ema.overwrite_frequency
            raise OptimizerUnsupported(option, str(value), "leave it out")


def _try_rule(optimizer: Optimizer, layout: Layout, names: frozenset[str]) -> None:
    """Update one small variable of each kind by a rule that edl does not know."""
    try:
        update_once(optimizer, [v for v in layout.variables if v.trainable and v.name in names])
    except Exception as error:
        rule = error if isinstance(error, RuleFailed) else RuleFailed(optimizer.rule, error)
        raise OptimizerUnsupported(
            "class", f"{optimizer.name} ({rule})", "repair the package that has this rule"
        ) from error
