"""Update rules that installed packages add, by entry points of the group ``edl.optimizers``."""

from __future__ import annotations

from dataclasses import is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.update_rules import ElementwiseRule, WholeVariableRule

GROUP = "edl.optimizers"


def find_installed_rule(name: str) -> type[Any] | None:
    """Return the rule that a package in this environment has for a class of optimizers.

    Args:
        name: of the Keras class.

    Returns:
        A dataclass; None if no package has a rule for this class.

    Raises:
        OptimizerUnsupported: the rule is broken, or several packages have one.
    """
    found = tuple(entry_points(group=GROUP, name=name))
    if not found:
        return None
    if len(found) > 1:
        places = " and ".join(map(_describe, found))
        raise OptimizerUnsupported("class", f"{name}, which {places} have,", "install one of them")
    place = _describe(found[0])
    try:
        rule = found[0].load()
    except Exception as error:
        problem = f"cannot be loaded ({type(error).__name__}: {error})"
        raise _refuse_rule(name, place, problem) from error
    bases = ElementwiseRule, WholeVariableRule
    if not (isinstance(rule, type) and issubclass(rule, bases) and is_dataclass(rule)):
        names = " or ".join(base.__name__ for base in bases)
        raise _refuse_rule(name, place, f"is no dataclass derived from {names}")
    return rule


def _describe(point: EntryPoint) -> str:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "a package"
    return f"{package} ({point.value})"


def _refuse_rule(name: str, place: str, problem: str) -> OptimizerUnsupported:
    return OptimizerUnsupported(
        "class", f"{name}, whose rule of {place} {problem},", "repair or remove that package"
    )
