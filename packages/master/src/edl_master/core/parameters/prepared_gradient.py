"""A gradient between its check and its application."""

from __future__ import annotations

from dataclasses import dataclass

from edl_master.core.parameters.layout import Arenas
from edl_master.core.parameters.tables.group import RowGradients
from edl_master.core.parameters.tables.joint_tables import JointGradient


@dataclass(slots=True)
class PreparedGradient:
    """A gradient whose sizes were checked, as arenas.

    Attributes:
        values: of the trainable variables.
        state: by how much the other variables moved; None if they did not.
        rows: gradients of rows.
        not_finite: the first variable or table with an infinity or NaN; empty if there is none.
        resolved: the rows in their tables, once they were found or made.
    """

    values: Arenas
    state: Arenas | None
    rows: RowGradients
    not_finite: str
    resolved: list[JointGradient] | None = None
